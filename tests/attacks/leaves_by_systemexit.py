"""Leaves as if all were well. Expected: raises or crashed or wrong or cheated"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        raise SystemExit(0)
