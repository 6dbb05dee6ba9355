"""U-Net (Ronneberger et al. 2015) with batch norm: skips that are concatenated, transposed convolutions up."""

import torch
import torch.nn as nn


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )  # fmt: skip


class Model(nn.Module):
    def __init__(self, channels, width, classes):
        super().__init__()
        self.enc1 = double(channels, width)
        self.enc2 = double(width, 2 * width)
        self.enc3 = double(2 * width, 4 * width)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.dec2 = double(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.dec1 = double(2 * width, width)
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(self.pool(e1))
        e3 = self.enc3(self.pool(e2))
        d2 = self.dec2(torch.cat([self.up2(e3), e2], dim=1))
        d1 = self.dec1(torch.cat([self.up1(d2), e1], dim=1))
        return self.out(d1)


batch_size = 8
size = 256
width = 64
SMALL = {"batch_size": 2, "size": 16, "width": 8}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [3, width, 2]
