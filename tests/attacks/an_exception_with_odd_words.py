"""Raises words with lone surrogates, escapes and ten million letters. Expected: raises or crashed"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        raise ValueError("\ud800\x1b[2J" + "x" * 10_000_000)
