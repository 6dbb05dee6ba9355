"""Raises a class whose name is an escape sequence. Expected: raises or crashed"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        raise type("\x1b]0;owned\x07\n\ud800", (Exception,), {})("odd")
