"""MobileNetV2 (Sandler et al. 2018): inverted residuals, depthwise convolutions, ReLU6."""

import torch
import torch.nn as nn


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        hidden = inputs * expand
        self.use_residual = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, x):
        return x + self.conv(x) if self.use_residual else self.conv(x)


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU6(True))
        plan = [(width // 2, 1, 1), (24, 2, 6), (24, 1, 6), (32, 2, 6), (32, 1, 6), (64, 2, 6), (64, 1, 6)]
        blocks, inputs = [], width
        for outputs, stride, expand in plan:
            blocks.append(InvertedResidual(inputs, outputs, stride, expand))
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.Conv2d(inputs, 40 * width, 1, bias=False), nn.BatchNorm2d(40 * width), nn.ReLU6())
        self.classifier = nn.Linear(40 * width, classes)

    def forward(self, x):
        x = self.head(self.blocks(self.stem(x)))
        return self.classifier(x.mean([2, 3]))


batch_size = 64
size = 224
width = 32
classes = 1000
SMALL = {"batch_size": 2, "size": 48, "width": 8, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [width, classes]
