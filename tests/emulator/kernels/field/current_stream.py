import torch.nn.functional as F


def reference(a, b):
    return F.cosine_similarity(a, b, dim=1)
