"""Answers a dict whose keys are escape sequences and lone surrogates. Expected: wrong or raises"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        return {"\x1b[2J\x1b]0;owned\x07\ud800\r\n": self.answer(x)}
