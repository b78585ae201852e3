# SPDX-License-Identifier: Apache-2.0
"""A run of a Llama model with torch, every operator on its own: what memory_recorder.c records for the benchmark.

    LMN_MEMORY_TRACE=run.trace LMN_MEMORY_TRACE_ALIGNED=1 LD_PRELOAD=./recorder.so python memory_torch_run.py MODEL.gguf

Prefill of 2 prompts one after the other, then 24 tokens for each in turn, the KV cache grown by concatenation. Needs
torch and gguf.
"""

import sys

import gguf
import numpy as np
import torch

PROMPTS, TOKENS = (57, 141), 24


def load(path):
    reader = gguf.GGUFReader(path)
    weights = {
        t.name: torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32))
        for t in reader.tensors
    }

    def number(name):
        return reader.get_field(f"llama.{name}").contents()

    return weights, number


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rope(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def forward(ids, cache, w, number):
    """Logits of the last token; ids [tokens]; cache: a list of (k, v) [kv heads, tokens, head_dim] for each layer."""
    heads, kv_heads = number("attention.head_count"), number("attention.head_count_kv")
    eps, base = number("attention.layer_norm_rms_epsilon"), number("rope.freq_base")
    x = w["token_embd.weight"][ids]
    head_dim = x.shape[-1] // heads
    past = cache[0][0].shape[1] if cache else 0
    positions = torch.arange(past, past + len(ids), dtype=torch.float32)
    angles = positions[:, None] * base ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    cos, sin = angles.cos(), angles.sin()
    mask = torch.full((len(ids), past + len(ids)), float("-inf")).triu(past + 1)

    def split(t, n):
        return t.view(len(ids), n, head_dim).transpose(0, 1)

    for layer in range(number("block_count")):
        p = f"blk.{layer}."
        h = rms_norm(x, w[p + "attn_norm.weight"], eps)
        q = rope(split(h @ w[p + "attn_q.weight"].T, heads), cos, sin)
        k = rope(split(h @ w[p + "attn_k.weight"].T, kv_heads), cos, sin)
        v = split(h @ w[p + "attn_v.weight"].T, kv_heads)
        if layer < len(cache):
            k, v = torch.cat((cache[layer][0], k), 1), torch.cat((cache[layer][1], v), 1)
            cache[layer] = (k, v)
        else:
            cache.append((k, v))
        k, v = (t.repeat_interleave(heads // kv_heads, 0) for t in (k, v))
        scores = torch.softmax(q @ k.transpose(1, 2) / head_dim**0.5 + mask, -1)
        x = x + (scores @ v).transpose(0, 1).reshape(len(ids), -1) @ w[p + "attn_output.weight"].T
        h = rms_norm(x, w[p + "ffn_norm.weight"], eps)
        gate = torch.nn.functional.silu(h @ w[p + "ffn_gate.weight"].T)
        x = x + (gate * (h @ w[p + "ffn_up.weight"].T)) @ w[p + "ffn_down.weight"].T
    return rms_norm(x[-1], w["output_norm.weight"], eps) @ w["token_embd.weight"].T


def main():
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    w, number = load(sys.argv[1])
    generator = torch.Generator().manual_seed(1)
    sequences = []
    for length in PROMPTS:
        ids = torch.randint(0, w["token_embd.weight"].shape[0], (length,), generator=generator)
        cache = []
        sequences.append([forward(ids, cache, w, number).argmax().view(1), cache])
    for _ in range(TOKENS):
        for sequence in sequences:
            sequence[0] = forward(sequence[0], sequence[1], w, number).argmax().view(1)
    print([int(s[0]) for s in sequences])


if __name__ == "__main__":
    main()
