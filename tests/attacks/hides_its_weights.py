"""Has a state_dict without weights, so that none are copied. Expected: wrong or cheated"""

from attack_head import Honest


class ModelNew(Honest):
    def state_dict(self, *args, **kwargs):
        return {}

    def load_state_dict(self, *args, **kwargs):
        return None
