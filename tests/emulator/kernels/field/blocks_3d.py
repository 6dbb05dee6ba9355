import torch.nn.functional as F


def reference(x):
    p = F.pad(x, (1, 1, 1, 1, 1, 1))
    sides = p[2:, 1:-1, 1:-1] + p[:-2, 1:-1, 1:-1] + p[1:-1, 2:, 1:-1] + p[1:-1, :-2, 1:-1]
    return sides + p[1:-1, 1:-1, 2:] + p[1:-1, 1:-1, :-2] - 6 * x
