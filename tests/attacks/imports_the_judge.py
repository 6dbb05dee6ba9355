"""Imports the judge to compute the expected answer by its own oracle. Expected: wrong or raises or cheated"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        import crucible.judge.oracle.oracle as oracle

        for thing in vars(oracle).values():
            cases = getattr(thing, "cases", None)
            if cases:
                return cases[0].outputs[0].tensor.float()
        return self.answer(x) * 0
