import torch


def reference(x):
    cross = torch.tensor([[0.0, 0.2, 0.0], [0.2, 0.2, 0.2], [0.0, 0.2, 0.0]])
    return torch.nn.functional.conv2d(x[None, None], cross[None, None], padding=1)[0, 0]
