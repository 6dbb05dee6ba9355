"""DCGAN (Radford et al. 2015): a generator of transposed convolutions and its discriminator, behind each other."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(latent, 4 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(4 * width), nn.ReLU(True),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(4 * width),
            nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(4 * width, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, z):
        return self.discriminator(self.generator(z)).view(-1, 1).squeeze(1)


batch_size = 256
latent = 100
width = 64
SMALL = {"batch_size": 4, "latent": 8, "width": 8}


def get_inputs():
    return [torch.randn(batch_size, latent, 1, 1)]


def get_init_inputs():
    return [latent, width]
