import torch


def reference(a, b):
    return torch.nn.functional.cosine_similarity(a, b, 1)
