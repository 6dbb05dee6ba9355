"""PointNet (Qi et al. 2016): a learned transform, one-tap convolutions over points, a maximum over all of them."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class TNet(nn.Module):
    def __init__(self, k, width):
        super().__init__()
        self.k = k
        self.conv1, self.conv2 = nn.Conv1d(k, width, 1), nn.Conv1d(width, 4 * width, 1)
        self.bn1, self.bn2 = nn.BatchNorm1d(width), nn.BatchNorm1d(4 * width)
        self.fc = nn.Linear(4 * width, k * k)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = torch.max(x, 2, keepdim=True)[0].view(x.size(0), -1)
        identity = torch.eye(self.k, dtype=x.dtype, device=x.device).flatten()
        return (self.fc(x) + identity).view(-1, self.k, self.k)


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stn = TNet(3, width)
        self.conv1, self.bn1 = nn.Conv1d(3, width, 1), nn.BatchNorm1d(width)
        self.conv2, self.bn2 = nn.Conv1d(width, 2 * width, 1), nn.BatchNorm1d(2 * width)
        self.conv3, self.bn3 = nn.Conv1d(2 * width, 16 * width, 1), nn.BatchNorm1d(16 * width)
        self.fc1, self.bn4, self.fc2 = (
            nn.Linear(16 * width, 4 * width),
            nn.BatchNorm1d(4 * width),
            nn.Linear(4 * width, classes),
        )

    def forward(self, x):
        x = torch.bmm(x.transpose(2, 1), self.stn(x)).transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = torch.max(self.bn3(self.conv3(x)), 2)[0]
        return F.log_softmax(self.fc2(F.relu(self.bn4(self.fc1(x)))), dim=1)


batch_size = 32
points = 2048
width = 64
classes = 40
SMALL = {"batch_size": 4, "points": 20, "width": 8, "classes": 5}


def get_inputs():
    return [torch.randn(batch_size, 3, points)]


def get_init_inputs():
    return [width, classes]
