"""Ignores the weights that it is given. Expected: wrong or cheated"""

from attack_head import Honest


class ModelNew(Honest):
    def load_state_dict(self, *args, **kwargs):
        return None
