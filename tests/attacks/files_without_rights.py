"""Leaves folders that nobody may enter, and names that are no text. Expected: passed or wrong or raises"""

import os

from attack_head import Honest

try:
    os.makedirs(b"caf\xe9/\xff\xfe", exist_ok=True)
    open(b"caf\xe9/\xff\xfe/x", "w").close()
    os.mkfifo("pipe")
    os.symlink("/", "root")
    os.chmod("caf\udce9", 0)
except OSError:
    pass


class ModelNew(Honest):
    pass
