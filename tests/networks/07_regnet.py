"""RegNetY (Radosavovic et al. 2020): bottlenecks of grouped convolutions with squeeze and excitation."""

import torch
import torch.nn as nn


class SE(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.fc2(torch.relu(self.fc1(self.avgpool(x)))))


def conv(inputs, outputs, kernel, stride=1, groups=1):
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, group):
        super().__init__()
        self.f = nn.Sequential(
            *conv(inputs, outputs, 1), nn.ReLU(True), *conv(outputs, outputs, 3, stride, outputs // group),
            nn.ReLU(True), SE(outputs, max(inputs // 4, 4)), *conv(outputs, outputs, 1),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.proj = nn.Identity() if same else nn.Sequential(*conv(inputs, outputs, 1, stride))
        self.act = nn.ReLU(True)

    def forward(self, x):
        return self.act(self.proj(x) + self.f(x))


class Model(nn.Module):
    def __init__(self, width, group, classes):
        super().__init__()
        self.stem = nn.Sequential(*conv(3, 32, 3, 2), nn.ReLU(True))
        self.trunk = nn.Sequential(
            Block(32, width, 2, group), Block(width, 2 * width, 2, group), Block(2 * width, 2 * width, 1, group),
            Block(2 * width, 5 * width, 2, group),
        )  # fmt: skip
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(5 * width, classes)

    def forward(self, x):
        x = self.pool(self.trunk(self.stem(x)))
        return self.fc(x.flatten(start_dim=1))


batch_size = 64
size = 224
width = 64
group = 16
classes = 1000
SMALL = {"batch_size": 2, "size": 48, "width": 8, "group": 4, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [width, group, classes]
