"""EfficientNet (Tan and Le 2019): MBConv blocks with squeeze and excitation, SiLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MBConv(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride, expand):
        super().__init__()
        hidden = inputs * expand
        self.expand_conv = nn.Conv2d(inputs, hidden, 1, bias=False)
        self.bn0 = nn.BatchNorm2d(hidden, eps=1e-3)
        self.depthwise = nn.Conv2d(hidden, hidden, kernel, stride, kernel // 2, groups=hidden, bias=False)
        self.bn1 = nn.BatchNorm2d(hidden, eps=1e-3)
        self.se_reduce = nn.Conv2d(hidden, max(1, inputs // 4), 1)
        self.se_expand = nn.Conv2d(max(1, inputs // 4), hidden, 1)
        self.project = nn.Conv2d(hidden, outputs, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs, eps=1e-3)
        self.skip = stride == 1 and inputs == outputs

    def forward(self, x):
        y = F.silu(self.bn0(self.expand_conv(x)))
        y = F.silu(self.bn1(self.depthwise(y)))
        scale = y.mean((2, 3), keepdim=True)
        y = y * torch.sigmoid(self.se_expand(F.silu(self.se_reduce(scale))))
        y = self.bn2(self.project(y))
        return x + y if self.skip else y


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(width, eps=1e-3)
        self.blocks = nn.ModuleList(
            [
                MBConv(width, width // 2, 3, 1, 1),
                MBConv(width // 2, 3 * width // 4, 3, 2, 6),
                MBConv(3 * width // 4, 3 * width // 4, 3, 1, 6),
                MBConv(3 * width // 4, 5 * width // 4, 5, 2, 6),
                MBConv(5 * width // 4, 5 * width // 4, 5, 1, 6),
            ]
        )
        self.head = nn.Conv2d(5 * width // 4, 20 * width, 1, bias=False)
        self.bn_head = nn.BatchNorm2d(20 * width, eps=1e-3)
        self.fc = nn.Linear(20 * width, classes)

    def forward(self, x):
        x = F.silu(self.bn(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        x = F.silu(self.bn_head(self.head(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


batch_size = 64
size = 224
width = 32
classes = 1000
SMALL = {"batch_size": 2, "size": 48, "width": 8, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [width, classes]
