"""Is wrong in one call of twenty, by chance. Expected: wrong or passed"""

import random

from attack_head import Honest

RANDOM = random.Random()


class ModelNew(Honest):
    def forward(self, x):
        return self.answer(x) if RANDOM.random() > 0.05 else self.answer(x) * 0
