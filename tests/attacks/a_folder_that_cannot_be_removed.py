"""Makes folders deeper than a path can name. Expected: passed or wrong"""

import os

from attack_head import Honest

try:
    for _ in range(3000):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
except OSError:
    pass


class ModelNew(Honest):
    pass
