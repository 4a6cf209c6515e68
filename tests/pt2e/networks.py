# SPDX-License-Identifier: Apache-2.0
"""Small networks of PyTorch with seeded weights, and their way through PT2E."""

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Sums, a concatenation, depthwise convolution, pooling, and activations that a table computes."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.second = nn.Conv2d(16, 16, 3, stride=2)
        self.last = nn.Linear(16, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        y = functional.relu(self.depthwise(x) + x)
        z = functional.hardswish(self.second(functional.max_pool2d(torch.cat([x, y], 1), 2)))
        return self.last(functional.adaptive_avg_pool2d(z, 1).flatten(1))


class Attention(nn.Module):
    """Linear layers of three axes, products of two activations, a softmax, and a gated end."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        q, k, v = (f(x).view(x.shape[0], -1, 2, 8).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / 8**0.5, -1)
        x = x + torch.matmul(weights, v).transpose(1, 2).reshape(x.shape)
        a, b = torch.chunk(self.up(x), 2, -1)
        return x + functional.relu6(a) * torch.sigmoid(b) + functional.gelu(self.down(functional.silu(self.up(x))))


SHAPES = {Residual: (2, 3, 16, 16), Attention: (2, 12, 16)}


def quantised(kind, quantizer, qat=False, seed=0):
    """The converted model and an input for it."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model, x = kind(), torch.randn(SHAPES[kind])
    with torch.no_grad():
        for _ in range(3):
            model.train()(torch.randn(SHAPES[kind]))
    exported = torch.export.export(model.train(qat), (x,)).module()
    prepared = (prepare_qat_pt2e if qat else prepare_pt2e)(exported, quantizer)
    step = torch.optim.SGD(prepared.parameters(), 1e-2)
    for _ in range(2):
        loss = (prepared(torch.randn(SHAPES[kind])) ** 2).mean()
        if qat:
            step.zero_grad()
            loss.backward()
            step.step()
    converted = convert_pt2e(prepared)
    move_exported_model_to_eval(converted)
    return converted, x
