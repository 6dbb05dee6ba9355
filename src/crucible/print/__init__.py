"""Printers: the only place where kernels of the IR become text."""
