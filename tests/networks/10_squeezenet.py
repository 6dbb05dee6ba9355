"""SqueezeNet (Iandola et al. 2016): fire modules that concatenate 1x1 and 3x3 convolutions."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Fire(nn.Module):
    def __init__(self, inputs, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.expand1x1(x)), F.relu(self.expand3x3(x))], 1)


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        w = width
        self.features = nn.Sequential(
            nn.Conv2d(3, 4 * w, 3, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(4 * w, w, 4 * w), Fire(8 * w, w, 4 * w), nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(8 * w, 2 * w, 8 * w), Fire(16 * w, 2 * w, 8 * w), nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(16 * w, 3 * w, 12 * w), Fire(24 * w, 4 * w, 16 * w),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Conv2d(32 * w, classes, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1))

    def forward(self, x):
        return torch.flatten(self.classifier(self.features(x)), 1)


batch_size = 64
size = 224
width = 16
classes = 1000
SMALL = {"batch_size": 2, "size": 47, "width": 4, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [width, classes]
