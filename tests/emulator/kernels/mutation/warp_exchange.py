import torch


def reference(x):
    warps = torch.nn.functional.pad(x, (0, -x.numel() % 32)).reshape(-1, 32)
    return (warps.flip(1) + warps.sum(1, keepdim=True)).flatten()[: x.numel()]
