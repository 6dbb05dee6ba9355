"""Changes the request that the worker is working on. Expected: wrong or cheated"""

import sys

from attack_head import Honest


class ModelNew(Honest):
    def forward(self, x):
        frame = sys._getframe()
        while frame:
            request = frame.f_locals.get("request")
            if isinstance(request, dict):
                request["backward"] = False
                request["poison"] = False
            frame = frame.f_back
        return x.new_zeros(4, 16)
