"""MobileNetV3 (Howard et al. 2019): inverted residuals with squeeze and excitation, hardswish."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SqueezeExcitation(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.fc2(F.relu(self.fc1(scale))))


class Block(nn.Module):
    def __init__(self, inputs, hidden, outputs, kernel, stride, excite, act):
        super().__init__()
        self.residual = stride == 1 and inputs == outputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), act())
        depthwise = nn.Conv2d(hidden, hidden, kernel, stride, kernel // 2, groups=hidden, bias=False)
        self.depthwise = nn.Sequential(depthwise, nn.BatchNorm2d(hidden), act())
        self.se = SqueezeExcitation(hidden, max(hidden // 4, 8)) if excite else nn.Identity()
        self.project = nn.Sequential(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.project(self.se(self.depthwise(self.expand(x))))
        return y + x if self.residual else y


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.Hardswish())
        w = width
        self.blocks = nn.Sequential(
            Block(w, w, w, 3, 2, True, nn.ReLU),
            Block(w, 4 * w, 3 * w // 2, 3, 2, False, nn.ReLU),
            Block(3 * w // 2, 6 * w, 3 * w // 2, 3, 1, False, nn.ReLU),
            Block(3 * w // 2, 6 * w, 5 * w // 2, 5, 2, True, nn.Hardswish),
            Block(5 * w // 2, 15 * w, 5 * w // 2, 5, 1, True, nn.Hardswish),
        )
        self.head = nn.Sequential(nn.Conv2d(5 * w // 2, 36 * w, 1, bias=False), nn.BatchNorm2d(36 * w), nn.Hardswish())
        self.classifier = nn.Sequential(nn.Linear(36 * w, 64 * w), nn.Hardswish(), nn.Linear(64 * w, classes))

    def forward(self, x):
        x = self.head(self.blocks(self.stem(x)))
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


batch_size = 64
size = 224
width = 16
classes = 1000
SMALL = {"batch_size": 2, "size": 64, "width": 8, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [width, classes]
