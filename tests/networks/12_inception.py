"""GoogLeNet (Szegedy et al. 2014): four branches side by side, concatenated."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Conv(nn.Module):
    def __init__(self, inputs, outputs, **how):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, bias=False, **how)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Inception(nn.Module):
    def __init__(self, inputs, w):
        super().__init__()
        self.branch1 = Conv(inputs, 4 * w, kernel_size=1)
        self.branch2 = nn.Sequential(Conv(inputs, 6 * w, kernel_size=1), Conv(6 * w, 8 * w, kernel_size=3, padding=1))
        self.branch3 = nn.Sequential(Conv(inputs, w, kernel_size=1), Conv(w, 2 * w, kernel_size=3, padding=1))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), Conv(inputs, 2 * w, kernel_size=1))

    def forward(self, x):
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        w = width
        self.conv1 = Conv(3, 4 * w, kernel_size=7, stride=2, padding=3)
        self.conv2 = Conv(4 * w, 12 * w, kernel_size=3, padding=1)
        self.inception3a = Inception(12 * w, w)
        self.inception3b = Inception(16 * w, 2 * w)
        self.inception4a = Inception(32 * w, 2 * w)
        self.fc = nn.Linear(32 * w, classes)

    def forward(self, x):
        x = F.max_pool2d(self.conv1(x), 3, 2, ceil_mode=True)
        x = F.max_pool2d(self.conv2(x), 3, 2, ceil_mode=True)
        x = self.inception3b(self.inception3a(x))
        x = self.inception4a(F.max_pool2d(x, 3, 2, ceil_mode=True))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


batch_size = 64
size = 224
width = 16
classes = 1000
SMALL = {"batch_size": 2, "size": 40, "width": 4, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [width, classes]
