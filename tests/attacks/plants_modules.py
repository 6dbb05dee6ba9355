"""Leaves modules named torch and json in every folder that it may write. Expected: passed or wrong or raises"""

import os
import sys

from attack_head import Honest

for folder in {os.getcwd(), *sys.path, "/tmp", os.path.expanduser("~")}:
    for name in ("torch.py", "json.py", "sitecustomize.py"):
        try:
            open(os.path.join(folder, name), "x").write("raise SystemExit('planted')")
        except OSError:
            pass


class ModelNew(Honest):
    pass
