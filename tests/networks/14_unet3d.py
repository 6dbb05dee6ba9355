"""3-d U-Net (Cicek et al. 2016): volumes, instance norm, leaky ReLU, upsampling by interpolation."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Double(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, outputs, 3, padding=1)
        self.norm1 = nn.InstanceNorm3d(outputs, affine=True)
        self.conv2 = nn.Conv3d(outputs, outputs, 3, padding=1)
        self.norm2 = nn.InstanceNorm3d(outputs, affine=True)

    def forward(self, x):
        x = F.leaky_relu(self.norm1(self.conv1(x)), 0.01)
        return F.leaky_relu(self.norm2(self.conv2(x)), 0.01)


class Model(nn.Module):
    def __init__(self, channels, width, classes):
        super().__init__()
        self.enc1 = Double(channels, width)
        self.enc2 = Double(width, 2 * width)
        self.enc3 = Double(2 * width, 4 * width)
        self.dec2 = Double(6 * width, 2 * width)
        self.dec1 = Double(3 * width, width)
        self.out = nn.Conv3d(width, classes, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool3d(e1, 2))
        e3 = self.enc3(F.max_pool3d(e2, 2))
        up = F.interpolate(e3, scale_factor=2, mode="nearest")
        d2 = self.dec2(torch.cat([up, e2], 1))
        up = F.interpolate(d2, scale_factor=2, mode="trilinear", align_corners=False)
        d1 = self.dec1(torch.cat([up, e1], 1))
        return torch.softmax(self.out(d1), dim=1)


batch_size = 2
size = 64
width = 32
SMALL = {"batch_size": 1, "size": 8, "width": 4}


def get_inputs():
    return [torch.rand(batch_size, 1, size, size, size)]


def get_init_inputs():
    return [1, width, 4]
