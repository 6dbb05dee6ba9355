import torch.nn.functional as F


def reference(x, taps):
    half = taps.shape[0] // 2
    padded = F.pad(x[None, None], (half, half, half, half), mode="replicate")
    return F.conv2d(padded, taps[None, None])[0, 0]
