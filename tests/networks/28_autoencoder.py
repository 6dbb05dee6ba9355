"""A variational autoencoder of convolutions: strides down, transposed convolutions up; its noise is an input."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, width, latent, side):
        super().__init__()
        self.width, self.side = width, side // 8
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2), nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
            nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2),
        )  # fmt: skip
        features = 4 * width * self.side**2
        self.mean, self.log_variance = nn.Linear(features, latent), nn.Linear(features, latent)
        self.fc = nn.Linear(latent, features)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x, noise):
        y = self.encoder(x).flatten(1)
        mean, log_variance = self.mean(y), self.log_variance(y)
        z = mean + noise * torch.exp(0.5 * log_variance)
        made = self.decoder(self.fc(z).view(-1, 4 * self.width, self.side, self.side))
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return made, F.mse_loss(made, x, reduction="sum") + divergence


batch_size = 128
side = 64
width = 64
latent = 128
SMALL = {"batch_size": 3, "side": 16, "width": 4, "latent": 6}


def get_inputs():
    return [torch.rand(batch_size, 3, side, side), torch.randn(batch_size, latent)]


def get_init_inputs():
    return [width, latent, side]
