"""VGG (Simonyan and Zisserman 2014) with batch norm, its classifier on pooled features."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        layers, channels = [], 3
        for step in ("1", "M", "2", "M", "4", "4", "M", "8", "8", "M"):
            if step == "M":
                layers.append(nn.MaxPool2d(2, 2))
                continue
            outputs = width * int(step)
            layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
            channels = outputs
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(channels * 49, 16 * width), nn.ReLU(True), nn.Linear(16 * width, classes)
        )

    def forward(self, x):
        x = self.avgpool(self.features(x))
        return self.classifier(x.view(x.size(0), -1))


batch_size = 32
size = 224
width = 64
classes = 1000
SMALL = {"batch_size": 2, "size": 32, "width": 12, "classes": 10}


def get_inputs():
    return [torch.rand(batch_size, 3, size, size)]


def get_init_inputs():
    return [width, classes]
