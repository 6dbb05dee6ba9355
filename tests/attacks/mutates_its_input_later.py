"""Changes its input from a thread, after it has answered. Expected: cheated or wrong or passed"""

import threading
import time

import torch

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        y = self.answer(x)

        def later():
            time.sleep(0.002)
            with torch.no_grad():
                x.detach().zero_()

        threading.Thread(target=later).start()
        return y
