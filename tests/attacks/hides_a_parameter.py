"""Leaves its bias out of named_parameters. Expected: inference-only or wrong or cheated

Training: yes
"""

from attack_head import Honest


class ModelNew(Honest):
    def named_parameters(self, *args, **kwargs):
        for name, p in super().named_parameters(*args, **kwargs):
            if name != "bias":
                yield name, p
