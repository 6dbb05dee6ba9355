import torch.nn.functional as F


def reference(x, weight, bias):
    return F.conv_transpose2d(x, weight, bias, stride=2, padding=1, output_padding=1)
