"""Changes PyTorch's default dtype and flushes denormals. Expected: raises or wrong or cheated"""

import torch

from attack_head import Honest

torch.set_default_dtype(torch.float64)
torch.set_flush_denormal(True)


class ModelNew(Honest):
    pass
