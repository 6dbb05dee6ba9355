"""Its own backward, strides made plain where memory is read, statistics by hand. Expected: passed"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, cotangent):
        x, scale = ctx.saved_tensors
        memory = cotangent.contiguous().view(-1)
        return memory.reshape(x.shape) * scale, (memory.reshape(x.shape) * x).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features, rows):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features))
        self.table = nn.Embedding(rows, features, padding_idx=3)

    def forward(self, x, index):
        mixed = Scaled.apply(self.normed(self.linear(x)), self.scale) + self.table(index)
        return mixed, torch.relu(x), self.shifted(x), F.layer_norm(x, x.shape[-1:]), x.max(-1).indices

    def shifted(self, x):
        powers = (x - x.amax(-1, keepdim=True)).exp()
        return powers / powers.sum(-1, keepdim=True)

    def normed(self, x):
        """A batch norm by its formula, the statistics kept beside it."""
        norm, var = self.norm, x.var(0, correction=0)
        with torch.no_grad():
            norm.running_mean.lerp_(x.mean(0), norm.momentum)
            norm.running_var.lerp_(var * (len(x) / max(1, len(x) - 1)), norm.momentum)
            norm.num_batches_tracked += 1
        return (x - x.mean(0)) / (var + norm.eps).sqrt() * norm.weight + norm.bias
