# SPDX-License-Identifier: Apache-2.0
"""Trains a small vision transformer on the handwritten digits inside scikit-learn, and exports it as PyTorch does.

    pip install -r requirements-train.txt           # only this script needs PyTorch
    python examples/vit/train.py                    # two minutes on one core; writes vit_float.onnx beside this script
    tessera quantize examples/vit/vit_float.onnx --calibrate examples/digits/digits_calibration.npz -o vit.onnx

The images of 8x8 pixels are cut into 16 patches. A class token stands in front of them; two layers of pre-normalised
attention with two heads and an MLP with GELU follow; the class token's channels decide. The 360 test images are those
of examples/digits, and are not trained on.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as functional
from sklearn.datasets import load_digits
from torch import nn

HERE = Path(__file__).resolve().parent


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.all, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.all(x).reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        share = (query * (width // self.heads) ** -0.5 @ key.transpose(-2, -1)).softmax(-1)
        return self.out((share @ value).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, width=48, heads=2, layers=2, patch=2, size=8):
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.classifier = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.classifier(self.norm(self.blocks(x))[:, 0])


def shifted(images, random):
    """Images moved by up to one pixel each way, with zeros coming in."""
    wide = functional.pad(images, (1, 1, 1, 1))
    down, right = (int(torch.randint(3, (1,), generator=random)) for _ in range(2))
    return wide[:, :, down : down + 8, right : right + 8]


def train(model, images, labels, epochs):
    random = torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=epochs * (len(images) // 64 + 1))
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=random).split(64):
            loss = functional.cross_entropy(model(shifted(images[batch], random)), labels[batch], label_smoothing=0.05)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()


def without_traces(exported):
    """The model without the exporter's notes, which hold paths of the machine that it ran on."""
    graph = exported.graph
    for holder in [exported, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer]:
        del holder.metadata_props[:]
        holder.doc_string = ""
    return exported


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "vit_float.onnx")
    parser.add_argument("--epochs", type=int, default=320)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = load_digits()
    images = torch.from_numpy((data.images.astype(np.float32) / 16)[:, None])
    labels = torch.from_numpy(data.target.astype(np.int64))
    order = np.random.default_rng(0).permutation(len(images))
    test, learn = order[:360], order[360:]
    model = VisionTransformer()
    train(model, images[learn], labels[learn], args.epochs)
    model.eval()
    with torch.no_grad():
        right = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
    count = sum(weight.numel() for weight in model.parameters())
    print(f"{count:,} parameters; {right:.4f} of {len(test)} test images right")
    program = torch.onnx.export(
        model,
        (images[:2],),
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes={"image": {0: torch.export.Dim("N")}},
        opset_version=18,
    )
    onnx.save(without_traces(program.model_proto), args.output)


if __name__ == "__main__":
    main()
