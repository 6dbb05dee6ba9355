"""Takes its input's memory away. Expected: cheated or wrong or raises or crashed or illegal-access"""

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        y = self.answer(x.detach().clone())
        x.untyped_storage().resize_(0)
        return y
