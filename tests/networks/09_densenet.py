"""DenseNet (Huang et al. 2016): layers that read all before them, concatenated; transitions of average pools."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DenseLayer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features):
        x = torch.cat(features, 1)
        x = self.conv1(F.relu(self.norm1(x)))
        return self.conv2(F.relu(self.norm2(x)))


class DenseBlock(nn.Module):
    def __init__(self, layers, inputs, growth):
        super().__init__()
        self.layers = nn.ModuleList([DenseLayer(inputs + i * growth, growth) for i in range(layers)])

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class Model(nn.Module):
    def __init__(self, growth, layers, classes):
        super().__init__()
        width = 2 * growth
        self.conv0 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.norm0 = nn.BatchNorm2d(width)
        self.block1 = DenseBlock(layers, width, growth)
        width += layers * growth
        self.transition = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width // 2, 1, bias=False),
            nn.AvgPool2d(2, 2),
        )
        self.block2 = DenseBlock(layers, width // 2, growth)
        width = width // 2 + layers * growth
        self.norm5 = nn.BatchNorm2d(width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm0(self.conv0(x))), 3, 2, 1)
        x = self.block2(self.transition(self.block1(x)))
        x = F.relu(self.norm5(x), inplace=True)
        return self.classifier(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


batch_size = 64
size = 224
growth = 32
layers = 4
classes = 1000
SMALL = {"batch_size": 2, "size": 32, "growth": 8, "layers": 2, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [growth, layers, classes]
