"""Plain, and honest. Twin. Expected: passed"""

from attack_head import Honest


class ModelNew(Honest):
    pass
