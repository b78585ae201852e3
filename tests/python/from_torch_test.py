# SPDX-License-Identifier: Apache-2.0
"""from_torch: seeded modules against PyTorch itself, with sizes that differ from run to run."""

from __future__ import annotations

import subprocess
import sys

import lmnative
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
    pytest.skip(f"torch {torch.__version__} is older than 2.6", allow_module_level=True)
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


def check(module, *examples, dynamic=None, others=(), tolerance=1e-4):
    """The session of the module on the examples and on `others`, which are further tuples of inputs."""
    session = lmnative.from_torch(module.eval(), examples, dynamic_shapes=dynamic, threads=1)
    names = [port.name for port in session.get_inputs()]
    for inputs in (examples, *others):
        with torch.no_grad():
            want, _ = torch.utils._pytree.tree_flatten(module(*inputs))
        got = session.run(None, dict(zip(names, inputs, strict=True)))
        assert len(got) == len(want)
        for ours, theirs in zip(got, want, strict=True):
            assert ours.shape == tuple(theirs.shape) and ours.dtype == theirs.numpy().dtype
            if theirs.is_floating_point():
                scale = max(1.0, float(theirs.abs().max()))
                assert np.abs(ours - theirs.numpy()).max(initial=0) <= tolerance * scale
            else:
                assert np.array_equal(ours, theirs.numpy())
    return session


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *x):
        return self.function(*x)


def test_mlp():
    torch.manual_seed(1)
    mlp = nn.Sequential(
        nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(), nn.Linear(32, 5)
    )
    session = check(mlp, random(3, 20), dynamic=({0: "batch"},), others=[(random(1, 20),), (random(7, 20),)])
    (port,) = session.get_inputs()
    assert (port.name, port.shape) == ("input", ["batch", 20])
    assert session.get_outputs()[0].shape == ["batch", 5] and session.get_outputs()[0].name == "output"
    assert session.graph().count("= lmnative.Linear(") == 3 and "activation=Relu" in session.graph()


def test_parameters_are_shared():
    layer = nn.Linear(4, 4, bias=False)
    session = lmnative.from_torch(layer.eval(), random(2, 4), optimize=False, threads=1)
    before = session.run(None, {"input": random(2, 4)})[0]
    del session
    with torch.no_grad():
        layer.weight.mul_(2)
    session = lmnative.from_torch(layer, random(2, 4), threads=1)
    assert np.allclose(session.run(None, {"input": random(2, 4)})[0], 2 * before, atol=1e-5)
    g = lmnative.Graph()
    g.output("y", g.input("x", "float32", (4, 4)) + layer.weight.detach())
    session = g.session(threads=1, optimize=False)
    with torch.no_grad():
        layer.weight.fill_(3)
    assert session.run(None, {"x": np.zeros((4, 4), "f4")})[0].min() == 3


class Block(nn.Module):
    """A residual block, with a stem and a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.a = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.b = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=4), nn.BatchNorm2d(16))
        self.short = nn.Conv2d(8, 16, 1, 2)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.pool(self.stem(x))
        x = F.relu_(self.b(self.a(x)) + self.short(x))
        return F.adaptive_avg_pool2d(x, 1).flatten(1), self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def test_residual_block():
    torch.manual_seed(2)
    block = Block()
    for module in block.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    session = check(block, random(2, 3, 32, 32), dynamic=({0: "batch"},), others=[(random(5, 3, 32, 32),)])
    assert [port.name for port in session.get_outputs()] == ["output.0", "output.1"]


class Encoder(nn.Module):
    """BERT's shape: embeddings of tokens and places, a mask, layers of self-attention, a mean without padding."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places, self.norm = nn.Embedding(50, 24), nn.Embedding(16, 24), nn.LayerNorm(24)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(24, 3, 48, activation="gelu", batch_first=True, norm_first=first)
            for first in (False, True)
        )
        self.pooler = nn.Linear(24, 24)

    def forward(self, input_ids, attention_mask):
        batch, length = input_ids.shape
        places = torch.arange(length, device=input_ids.device).unsqueeze(0).expand(batch, -1)
        x = self.norm(self.tokens(input_ids) + self.places(places))
        keep = attention_mask[:, None, None, :].to(torch.bool)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=(attention_mask == 0))
        q = x.view(batch, length, 3, 8).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(q, q, q, attn_mask=keep).transpose(1, 2).reshape(batch, length, 24)
        weight = attention_mask.unsqueeze(-1).to(x.dtype)
        mean = (x * weight).sum(1) / torch.clamp(weight.sum(1), min=1e-9)
        return {"hidden": x, "pooled": torch.tanh(self.pooler(x[:, 0])), "mean": F.normalize(mean, p=2.0, dim=1)}


def test_encoder():
    torch.manual_seed(3)

    def inputs(batch, length):
        ids = torch.randint(0, 50, (batch, length), generator=torch.Generator().manual_seed(batch))
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[-1, length // 2 + 1 :] = 0
        return ids, mask

    sizes = {0: "batch", 1: "tokens"}
    session = check(
        Encoder(), *inputs(2, 7), dynamic={"input_ids": sizes, "attention_mask": sizes},
        others=[inputs(1, 4), inputs(3, 16)],
    )  # fmt: skip
    assert [(port.name, port.shape) for port in session.get_inputs()] == [
        ("input_ids", ["batch", "tokens"]),
        ("attention_mask", ["batch", "tokens"]),
    ]
    assert [port.name for port in session.get_outputs()] == ["hidden", "pooled", "mean"]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
def test_recurrent_layers(kind, options):
    torch.manual_seed(4)
    layer = kind(6, 5, batch_first=True, **options)
    check(layer, random(2, 4, 6), dynamic=({0: "batch", 1: "steps"},), others=[(random(5, 9, 6),), (random(1, 1, 6),)])
    assert layer(random(2, 4, 6))[0].requires_grad  # nothing is left of what kept the layer whole


def test_cells():
    torch.manual_seed(7)
    check(nn.LSTMCell(6, 5), random(3, 6))
    check(nn.GRUCell(6, 5), random(3, 6), random(3, 5))


def test_causal_language_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.project = nn.Embedding(20, 16), nn.Linear(16, 48, bias=False)
            self.norm, self.gate, self.up = nn.RMSNorm(16), nn.Linear(16, 24), nn.Linear(16, 24)
            self.down = nn.Linear(24, 16)

        def forward(self, ids):
            x = self.table(ids)
            batch, length, _ = x.shape
            q, k, v = self.project(self.norm(x)).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
            angle = torch.arange(length)[:, None] * 0.1 + torch.arange(4)[None] * 0.5
            turned = []
            for half in (q, k):
                a, b = half.chunk(2, -1)
                turned.append(torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1))
            y = F.scaled_dot_product_attention(*turned, v, is_causal=True)
            x = x + y.transpose(1, 2).flatten(2)
            x = x + self.down(F.silu(self.gate(x)) * self.up(x))
            return x[:, -1] @ self.table.weight.T

    torch.manual_seed(5)
    check(Model(), torch.arange(10).reshape(2, 5), dynamic=({0: "batch", 1: "tokens"},),
          others=[(torch.arange(9).reshape(3, 3),)])  # fmt: skip


FUNCTIONS = {
    "arithmetic": lambda x: (x + 1) * 2 / 3 - x**2 + 1 / (x.abs() + 1) - (-x) + torch.rsub(x, 2, alpha=3),
    "integers": lambda x: ((x * 7).int() // 3, (x * 7).long() % 4, x > 0, (x * 3).int() / 2, x.to(torch.float64)),
    "activations": lambda x: torch.cat([
        F.silu(x), F.gelu(x, approximate="tanh"), F.elu(x), F.leaky_relu(x, 0.2), F.hardtanh(x), F.relu6(x * 4),
        F.hardswish(x), F.hardsigmoid(x), F.softplus(x), F.mish(x), F.glu(x, -1).repeat(1, 1, 2), x.sigmoid(),
    ]),
    "reductions": lambda x: (
        x.sum(), x.mean(-1, keepdim=True), x.amax((0, 1)), x.max(1), x.min(-1).values, x.argmax(-1), x.var(-1), x.std(),
        x.prod(0), x.cumsum(1), (x > 0).any(-1), (x > 0).all(), x.norm(dim=-1), torch.logsumexp(x, 1),
    ),
    "indexing": lambda x: (
        x[:, 1:3, ::2], x[..., -1], x[0], x.flip(0, 2), x.index_select(1, torch.tensor([2, 0])),
        x[torch.tensor([1, 0])],
        x.gather(1, torch.zeros(2, 1, 6, dtype=torch.int64)), x.narrow(2, 1, 3), x[torch.tensor([0, 1]), :2].sum(1),
    ),
    "shapes": lambda x: (
        x.reshape(-1, 3), x.flatten(), x.permute(2, 0, 1), x.unsqueeze(1).squeeze(), x.split([1, 3], 1)[1],
        x.chunk(3, -1),
        torch.stack([x, x], 1), x.expand(3, 2, 4, 6), x.repeat(2, 1, 1), F.pad(x, (1, 2, 0, 1), value=3.0), x.mT,
        x.unbind(1)[2], F.pad(x, (1, 2), mode="reflect"),
    ),
    "made": lambda x: (
        torch.zeros(2, 3), torch.full((2,), 7), torch.ones_like(x), torch.arange(3), x.new_zeros(1), torch.eye(3) + 0,
        torch.arange(0, 1, 0.25),
    ),
    "masks": lambda x: (
        x.masked_fill(x < 0, -1.0), torch.where(x > 0, x, 0.5), x.tril(1), x.triu(), ~(x > 0), (x > 0) & (x < 1),
        x.clamp(-1, 1), x.clamp(min=0.1), x.isnan(), torch.softmax(x.masked_fill(x > 1, float("-inf")), -1),
    ),
    "assignments": lambda x: _assigned(x),
    "scatter": lambda x: (
        x.scatter(1, torch.zeros(2, 1, 6, dtype=torch.int64), 3.0), x.roll(1, 1), x.repeat_interleave(2, 1),
        x.clone().index_put_((torch.tensor([1]), torch.tensor([0])), torch.tensor(2.0)), F.one_hot(x.argmax(-1), 6),
    ),
    "rounding": lambda x: (x.trunc(), x.frac(), torch.var_mean(x, -1), F.instance_norm(x), F.adaptive_max_pool1d(x, 1)),
    "ordering": lambda x: (x.topk(2, -1), x.sort(1), x.argsort(-1, descending=True)),
    "einsum": lambda x: (torch.einsum("bij,bkj->bik", x, x), torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5, alpha=2)),
    "norms": lambda x: (F.layer_norm(x, (6,)), F.group_norm(x, 2), F.log_softmax(x, 1), F.normalize(x, dim=-1)),
    "unchanged": lambda x: (x, x.clone(), x.contiguous().detach()),
}  # fmt: skip


def _assigned(x):
    y = x.clone()
    y[:, 0] = 0
    y[:, 1:3] *= 2
    return y.add_(1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    check(Function(FUNCTIONS[name]), random(2, 4, 6))


def test_convolutions():
    torch.manual_seed(6)
    one = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.ReLU(), nn.ConvTranspose1d(4, 2, 4, stride=2))
    check(one, random(2, 3, 10), dynamic=({0: "batch"},), others=[(random(1, 3, 10),)])
    two = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding="same", dilation=2), nn.AvgPool2d(2), nn.ConvTranspose2d(8, 4, 3, 2, 1, 1),
        nn.PixelShuffle(2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.GroupNorm(1, 1), nn.PReLU(),
        nn.Upsample(scale_factor=2), nn.AdaptiveAvgPool2d(4),
    )  # fmt: skip
    check(two, random(2, 4, 8, 8))


def test_an_exported_program_is_taken_as_it_is():
    program = torch.export.export(nn.Linear(3, 2).eval(), (random(4, 3),))
    session = lmnative.from_torch(program, None, threads=1)
    want = program.module()(random(4, 3)).detach().numpy()
    assert np.allclose(session.run(None, {"input": random(4, 3)})[0], want, atol=1e-5)


def test_errors_say_everything_at_once():
    module = Function(lambda x: torch.fft.fft(x).real + torch.linalg.inv(x) + torch.bucketize(x, x[0])).eval()
    with pytest.raises(lmnative.UnsupportedError, match=r"aten\._fft_r2c.*aten\.bucketize"):
        lmnative.from_torch(module, random(4, 4))
    with pytest.raises(lmnative.InvalidArgumentError, match=r"call module\.eval\(\)"):
        lmnative.from_torch(nn.Linear(2, 2).train(), random(1, 2))
    with pytest.raises(TypeError, match="module must be a torch.nn.Module or an ExportedProgram, not str"):
        lmnative.from_torch("model.pt", random(1, 2))


def test_torch_is_not_needed_until_it_is():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import lmnative\n"
        "try: lmnative.from_torch(None, None)\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install torch" in done.stdout
