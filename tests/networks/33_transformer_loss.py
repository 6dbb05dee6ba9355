"""PyTorch's own encoder layers over embedded tokens, and the loss that they are trained by."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, vocabulary, dim, heads, hidden, depth):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, hidden, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, ids, targets):
        logits = self.head(self.encoder(self.embed(ids)))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


batch_size = 16
length = 256
vocabulary = 10000
dim = 512
heads = 8
hidden = 2048
depth = 2
SMALL = {"batch_size": 2, "length": 10, "vocabulary": 30, "dim": 16, "heads": 2, "hidden": 32}


def get_inputs():
    ids = torch.randint(0, vocabulary, (batch_size, length))
    return [ids, torch.randint(0, vocabulary, (batch_size, length))]


def get_init_inputs():
    return [vocabulary, dim, heads, hidden, depth]
