"""Asks another machine for the answer. Expected: wrong or raises"""

import socket

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        for family, kind in (
            (socket.AF_INET, socket.SOCK_DGRAM),
            (socket.AF_INET6, socket.SOCK_STREAM),
            (socket.AF_UNIX, socket.SOCK_STREAM),
        ):
            try:
                socket.socket(family, kind)
                return self.answer(x)
            except OSError:
                pass
        return self.answer(x) * 0
