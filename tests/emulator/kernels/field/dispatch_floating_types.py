import torch


def reference(x, y):
    narrow = torch.sqrt(x * x + y * y + 1)
    x, y = x.double(), y.double()
    return torch.stack([narrow.double(), torch.sqrt(x * x + y * y + 1)])
