"""BERT layers (Devlin et al. 2018): post-norm, three embeddings, a mask of padding that is added to the scores."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.dense = nn.Linear(dim, dim)
        self.norm1 = nn.LayerNorm(dim, eps=1e-12)
        self.intermediate = nn.Linear(dim, 4 * dim)
        self.output = nn.Linear(4 * dim, dim)
        self.norm2 = nn.LayerNorm(dim, eps=1e-12)

    def split(self, x):
        return x.view((*x.size()[:-1], self.heads, self.size)).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.size) + mask
        context = torch.matmul(F.softmax(scores, dim=-1), v).permute(0, 2, 1, 3).contiguous()
        context = context.view((*context.size()[:-2], self.heads * self.size))
        x = self.norm1(self.dense(context) + x)
        return self.norm2(self.output(F.gelu(self.intermediate(x))) + x)


class Model(nn.Module):
    def __init__(self, vocabulary, longest, dim, heads, depth):
        super().__init__()
        self.words = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.places = nn.Embedding(longest, dim)
        self.types = nn.Embedding(2, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.pooler = nn.Linear(dim, dim)
        self.register_buffer("position_ids", torch.arange(longest).expand((1, -1)))

    def forward(self, ids, types, attention_mask):
        places = self.position_ids[:, : ids.size(1)]
        x = self.norm(self.words(ids) + self.types(types) + self.places(places))
        mask = (1.0 - attention_mask[:, None, None, :]) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


batch_size = 16
length = 256
vocabulary = 30522
longest = 512
dim = 768
heads = 12
depth = 3
SMALL = {"batch_size": 2, "length": 12, "vocabulary": 40, "longest": 16, "dim": 32, "heads": 2, "depth": 2}


def get_inputs():
    ids = torch.randint(0, vocabulary, (batch_size, length))
    types = torch.randint(0, 2, (batch_size, length))
    return [ids, types, (torch.rand(batch_size, length) > 0.2).float()]


def get_init_inputs():
    return [vocabulary, longest, dim, heads, depth]
