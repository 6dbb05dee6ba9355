"""Asks no gradient of its bias. Expected: inference-only or wrong

Training: yes
"""

from attack_head import Honest


class ModelNew(Honest):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.bias.requires_grad_(False)
