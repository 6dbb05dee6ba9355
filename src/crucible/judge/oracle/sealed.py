"""Where expected values lie: in files without a name, whose pages the system may have back."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
from pathlib import Path

import torch

from crucible.errors import JudgeError

_libc = ctypes.CDLL(None)
_DONT_NEED = 4  # MADV_DONTNEED, linux/mman.h


class SealedStore:
    """Large tensors in files that nobody can open: unlinked the moment they exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        if elements == 0:
            return torch.empty(0, dtype=dtype)
        size = elements * dtype.itemsize
        path = self.folder / f"expected{next(self._numbers)}"
        try:
            with path.open("wb") as file:
                # Now: who writes to a page that a full disk has no block for is killed (SIGBUS), and several judges may
                # each have found that theirs fits.
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            path.unlink(missing_ok=True)
            free = shutil.disk_usage(self.folder).free
            raise JudgeError(
                f"the oracle needs {size >> 20} MiB in {self.folder} and {free >> 20} are free ({error.strerror}): "
                "set TMPDIR"
            ) from error
        values = torch.from_file(str(path), shared=True, size=elements, dtype=dtype)
        path.unlink()
        return values

    @staticmethod
    def release(values: torch.Tensor) -> None:
        """Gives a tensor's pages back to the system, which has them in the file; reading brings them back. What lies in
        no file stays: it would be zeros (so a right answer's running mean was convicted, one address in 64)."""
        if values.untyped_storage().filename is None:
            return
        page = os.sysconf("SC_PAGE_SIZE")
        start = values.data_ptr()
        size = values.numel() * values.element_size() // page * page
        if size and start % page == 0:
            _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _DONT_NEED)
