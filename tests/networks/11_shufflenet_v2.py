"""ShuffleNetV2 (Ma et al. 2018): channels split in halves, concatenated and shuffled."""

import torch
import torch.nn as nn


def channel_shuffle(x, groups):
    n, c, h, w = x.size()
    x = x.view(n, groups, c // groups, h, w)
    return torch.transpose(x, 1, 2).contiguous().view(n, c, h, w)


def pointwise(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def depthwise(channels, stride):
    return [nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False), nn.BatchNorm2d(channels)]


class Unit(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        half = outputs // 2
        self.stride = stride
        self.branch1 = nn.Sequential(*depthwise(inputs, 2), *pointwise(inputs, half)) if stride > 1 else nn.Sequential()
        self.branch2 = nn.Sequential(
            *pointwise(inputs if stride > 1 else half, half), *depthwise(half, stride), *pointwise(half, half)
        )

    def forward(self, x):
        if self.stride == 1:
            x1, x2 = x.chunk(2, dim=1)
            out = torch.cat((x1, self.branch2(x2)), dim=1)
        else:
            out = torch.cat((self.branch1(x), self.branch2(x)), dim=1)
        return channel_shuffle(out, 2)


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.stage2 = nn.Sequential(Unit(24, width, 2), Unit(width, width, 1), Unit(width, width, 1))
        self.stage3 = nn.Sequential(Unit(width, 2 * width, 2), Unit(2 * width, 2 * width, 1))
        self.conv5 = nn.Sequential(*pointwise(2 * width, 8 * width))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.conv5(self.stage3(self.stage2(self.maxpool(self.conv1(x)))))
        return self.fc(x.mean([2, 3]))


batch_size = 64
size = 224
width = 116
classes = 1000
SMALL = {"batch_size": 2, "size": 32, "width": 12, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [width, classes]
