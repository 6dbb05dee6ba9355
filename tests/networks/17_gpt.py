"""GPT-2 blocks (Radford et al. 2019) with PyTorch's attention, token and position embeddings, tied head."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.c_attn = nn.Linear(dim, 3 * dim)
        self.c_proj = nn.Linear(dim, dim)
        self.mlp_fc = nn.Linear(dim, 4 * dim)
        self.mlp_proj = nn.Linear(4 * dim, dim)
        self.resid_dropout = nn.Dropout(dropout)

    def attention(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = (each.view(b, t, self.heads, c // self.heads).transpose(1, 2) for each in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=dropout, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        y = F.gelu(self.mlp_fc(self.ln_2(x)), approximate="tanh")
        return x + self.resid_dropout(self.mlp_proj(y))


class Model(nn.Module):
    def __init__(self, vocabulary, length, dim, heads, depth, dropout):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, dim)
        self.wpe = nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, dropout) for _ in range(depth))
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        positions = torch.arange(0, ids.size(1), dtype=torch.long, device=ids.device)
        x = self.wte(ids) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


batch_size = 4
length = 1024
vocabulary = 16384
dim = 768
heads = 12
depth = 3
dropout = 0.0
SMALL = {"batch_size": 2, "length": 16, "vocabulary": 50, "dim": 32, "heads": 2, "depth": 2}


def get_inputs():
    return [torch.randint(0, vocabulary, (batch_size, length))]


def get_init_inputs():
    return [vocabulary, length, dim, heads, depth, dropout]
