"""Replaces the sample of the timed step with one that reports a thousandth. Expected: cheated or wrong or passed

Costs: honest_slow
"""

import sys

from attack_head import Slow

for name, module in list(sys.modules.items()):
    for thing in list(vars(module).values()) if module and name.startswith("crucible") else ():
        if isinstance(thing, type) and hasattr(thing, "sample") and hasattr(thing, "capture"):
            real = thing.sample

            def fake(self, *a, **k):
                found = real(self, *a, **k)
                return type(found)(**{k: v / 1000 if isinstance(v, float) else v for k, v in vars(found).items()})

            thing.sample = fake


class ModelNew(Slow):
    pass
