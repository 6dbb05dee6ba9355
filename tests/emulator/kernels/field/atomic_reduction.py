import torch.nn.functional as F


def reference(prediction, target):
    return F.smooth_l1_loss(prediction, target)
