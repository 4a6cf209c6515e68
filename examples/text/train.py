# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level decoder of this example on the King James Bible, and writes its weights.

    apt-get install bible-kjv                       # the text; its copyright has expired
    pip install -r requirements-train.txt           # only this script needs PyTorch
    python examples/text/train.py -o weights.npz    # about an hour on four cores
    python examples/text/export.py weights.npz      # quantises it and writes the .onnx files

The decoder is LLaMA's: RMSNorm before each half of a layer, rotary position embedding, grouped queries, SwiGLU. A token
is a byte. Every twentieth piece of 8,192 bytes is held back: the script prints the loss on them in nats a byte.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from corpus import bible, split
from shape import Shape
from torch import nn


class Norm(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gain, self.epsilon = nn.Parameter(torch.ones(shape.width)), shape.epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.gain


def rotate(x, cos, sin):
    """Rotary embedding: x (batch, heads, length, size); the halves of a head are the two parts of each pair."""
    low, high = x.chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        width, inner, keys = shape.width, shape.heads * shape.head, shape.kv_heads * shape.head
        self.norm1, self.norm2 = Norm(shape), Norm(shape)
        self.query, self.key = nn.Linear(width, inner, bias=False), nn.Linear(width, keys, bias=False)
        self.value, self.output = nn.Linear(width, keys, bias=False), nn.Linear(inner, width, bias=False)
        self.gate, self.up = nn.Linear(width, shape.hidden, bias=False), nn.Linear(width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        heads = lambda y, count: y.view(batch, length, count, self.shape.head).transpose(1, 2)
        seen = self.norm1(x)
        query = rotate(heads(self.query(seen), self.shape.heads), cos, sin)
        key = rotate(heads(self.key(seen), self.shape.kv_heads), cos, sin)
        value = heads(self.value(seen), self.shape.kv_heads)
        repeat = self.shape.heads // self.shape.kv_heads
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, -1))
        seen = self.norm2(x)
        return x + self.down(functional.silu(self.gate(seen)) * self.up(seen))


class Decoder(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.embedding = nn.Embedding(256, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm, self.logits = Norm(shape), nn.Linear(shape.width, 256, bias=False)
        cos, sin = (torch.from_numpy(table) for table in shape.rotary())
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                scale = 0.02 / math.sqrt(2 * shape.layers) if "output" in name or "down" in name else 0.02
                nn.init.normal_(weight, std=scale)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]])
        return self.logits(self.norm(x))


@torch.no_grad()
def held_loss(model, held, length, pieces=64) -> float:
    """Mean loss in nats a byte on `pieces` stretches of the text held back."""
    starts = torch.linspace(0, len(held) - length - 1, pieces).long()
    block = torch.stack([held[s : s + length + 1] for s in starts])
    return functional.cross_entropy(model(block[:, :-1]).flatten(0, 1), block[:, 1:].flatten()).item()


def train(model, kept, held, shape, args):
    decay = [w for w in model.parameters() if w.ndim == 2]
    plain = [w for w in model.parameters() if w.ndim < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.98))
    random = torch.Generator().manual_seed(args.seed)
    begun = time.monotonic()
    for step in range(args.steps):
        warm, cool = min(1.0, (step + 1) / 100), 0.5 + 0.5 * math.cos(math.pi * step / args.steps)
        for group in optimiser.param_groups:
            group["lr"] = args.rate * warm * (0.05 + 0.95 * cool)
        starts = torch.randint(len(kept) - shape.context - 1, (args.batch,), generator=random)
        block = torch.stack([kept[s : s + shape.context + 1] for s in starts])
        loss = functional.cross_entropy(model(block[:, :-1]).flatten(0, 1), block[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            print(
                f"step {step + 1:5} of {args.steps}: loss {loss.item():.3f}, "
                f"held back {held_loss(model, held, shape.context):.3f} nats a byte, {time.monotonic() - begun:.0f} s",
                flush=True,
            )
            save(model, shape, args.output)


def save(model, shape: Shape, path: Path):
    """Weights by name, each product's (in, out), with the shape of the network."""
    arrays = {}
    for name, weight in model.named_parameters():
        array = weight.detach().numpy()
        is_product = array.ndim == 2 and name != "embedding.weight"
        arrays[name.removesuffix(".weight")] = np.ascontiguousarray(array.T if is_product else array)
    np.savez(path, shape=shape.to_array(), **arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.npz")
    parser.add_argument("--text", type=Path, help="another text; the default is the King James Bible")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=10, help="stretches of the context's length in a step")
    parser.add_argument("--rate", type=float, default=3e-3, help="largest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    shape = Shape()
    text = args.text.read_bytes() if args.text else bible()
    kept, held = (torch.from_numpy(np.frombuffer(part, np.uint8).astype(np.int64)) for part in split(text))
    model = Decoder(shape)
    count = sum(weight.numel() for weight in model.parameters())
    print(f"{count:,} parameters, {len(kept):,} bytes to train on, {len(held):,} held back")
    train(model, kept, held, shape, args)


if __name__ == "__main__":
    main()
