"""NVIDIA's libdevice by meaning: what `tl.extra.libdevice` names, for the interpreter, which has none of it."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from crucible.emulator.triton.watch import Watch


def install(runtime: Any, watch: Watch) -> None:
    """Functions keep Triton's own check of their arguments' types; only what they compute is supplied."""
    own = importlib.import_module("triton.language.extra.cuda.libdevice")
    general = importlib.import_module("triton.language.extra.libdevice")
    runtime._patch_builtin(own, runtime.interpreter_builder, runtime._LangPatchScope())
    for name in [name for name in vars(general) if not name.startswith("_") and hasattr(own, name)]:
        setattr(general, name, getattr(own, name))

    def extern(self: Any, library: str, path: str, symbol: str, args: Any, kind: Any, is_pure: bool) -> Any:
        function = meaning(symbol)
        if function is None:
            watch.beyond(f"libdevice's {symbol}" if symbol.startswith("__nv_") else f"the external function {symbol}")
        values = np.asarray(function(*(argument.data for argument in args)))
        return runtime.TensorHandle(values.astype(runtime._get_np_dtype(kind.scalar), copy=False), kind.scalar)

    runtime.InterpreterBuilder.create_extern_elementwise = extern


def meaning(symbol: str) -> Callable[..., Any] | None:
    """What a function of libdevice computes, over arrays: `__nv_tanhf`, `__nv_fast_expf`, `__nv_float2int_rn`."""
    name = symbol.removeprefix("__nv_")
    for shortened in (name, name.removesuffix("f"), name.removesuffix("d"), name.removesuffix("ll")):
        shortened = shortened.removeprefix("fast_")
        if shortened in _FUNCTIONS:
            return _FUNCTIONS[shortened]
    operation = re.fullmatch(r"[fd](add|sub|mul|div|rcp|sqrt|rsqrt)_r[nzud]", name)
    if operation:
        return _FUNCTIONS[operation[1]]
    if re.fullmatch(r"fmaf?_r[nzud]", name):
        return _FUNCTIONS["fma"]
    to_integer = re.fullmatch(r"(?:float|double)2(?:u?int|u?ll)_r([nzud])", name)
    if to_integer:
        return {"n": np.rint, "z": np.trunc, "u": np.ceil, "d": np.floor}[to_integer[1]]
    is_conversion = re.fullmatch(r"(?:u?int|u?ll|double)2(?:float|double)_r[nzud]", name)
    return (lambda x: x) if is_conversion else None


def _of_torch(function: Any) -> Callable[..., Any]:
    """A function of PyTorch's over arrays, outside of all modes: it is not the candidate that calls it."""

    def call(*arrays: Any) -> Any:
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            tensors = [torch.from_numpy(np.array(array)) for array in arrays]
            return function(*tensors).numpy()

    return call


def _each(function: Callable[..., Any], kind: str | None = None) -> Callable[..., Any]:
    """A function of numbers, over arrays of the first argument's type, or of `kind`."""

    def call(*arrays: Any) -> Any:
        return np.vectorize(function, otypes=[kind or arrays[0].dtype])(*arrays)

    return call


def _high_product(x: Any, y: Any) -> Any:
    bits = x.dtype.itemsize * 8
    return _each(lambda a, b: int(a) * int(b) >> bits)(x, y)


def _reversed_bits(x: Any) -> Any:
    unsigned = x.view(f"u{x.dtype.itemsize}")
    octets = np.ascontiguousarray(unsigned[..., None]).view(np.uint8)
    flipped = np.packbits(np.unpackbits(octets, axis=-1, bitorder="little"), axis=-1)
    return np.ascontiguousarray(flipped).view(unsigned.dtype)[..., 0].view(x.dtype)


def _bits_of(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


def _leading_zeros(x: Any) -> Any:
    bits = x.dtype.itemsize * 8
    return _each(lambda value: bits - int(value).bit_length(), "i4")(_bits_of(x))


def _first_set(x: Any) -> Any:
    return _each(lambda value: (int(value) & -int(value)).bit_length(), "i4")(_bits_of(x))


_SPECIAL = torch.special
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt", "cbrt", "floor")},
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "ceil", "trunc")},
    **{name: getattr(np, name) for name in ("rint", "fmod", "copysign", "fmin", "fmax", "hypot", "nextafter", "ldexp")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    "abs": np.abs,
    "fabs": np.abs,
    "llabs": np.abs,
    "nearbyint": np.rint,
    "llrint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x),
    "llround": lambda x: np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x),
    "scalbn": np.ldexp,
    "remainder": _each(math.remainder),
    "pow": np.power,
    "powi": np.power,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "norm4d": lambda x, y, z, w: np.sqrt(x * x + y * y + z * z + w * w),
    "rnorm3d": lambda x, y, z: 1 / np.sqrt(x * x + y * y + z * z),
    "rnorm4d": lambda x, y, z, w: 1 / np.sqrt(x * x + y * y + z * z + w * w),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, x.dtype.type(2))),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, x.dtype.type(2))),
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), x + y, np.maximum(x - y, 0)),
    "fdivide": np.divide,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "fma": lambda x, y, z: x.astype(np.float64) * y + z,
    "saturate": lambda x: np.fmin(np.fmax(x, 0), 1),
    "logb": lambda x: np.frexp(x)[1] - 1.0,
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "erf": _of_torch(_SPECIAL.erf),
    "erfc": _of_torch(_SPECIAL.erfc),
    "erfcx": _of_torch(_SPECIAL.erfcx),
    "erfinv": _of_torch(_SPECIAL.erfinv),
    "erfcinv": _of_torch(lambda x: _SPECIAL.erfinv(1 - x)),
    "normcdf": _of_torch(_SPECIAL.ndtr),
    "normcdfinv": _of_torch(_SPECIAL.ndtri),
    "lgamma": _of_torch(torch.lgamma),
    "tgamma": _each(math.gamma),
    "cyl_bessel_i0": _of_torch(_SPECIAL.i0),
    "cyl_bessel_i1": _of_torch(_SPECIAL.i1),
    "j0": _of_torch(_SPECIAL.bessel_j0),
    "j1": _of_torch(_SPECIAL.bessel_j1),
    "y0": _of_torch(_SPECIAL.bessel_y0),
    "y1": _of_torch(_SPECIAL.bessel_y1),
    "popc": lambda x: np.bitwise_count(_bits_of(x)),
    "clz": _leading_zeros,
    "ffs": _first_set,
    "brev": _reversed_bits,
    "mulhi": _high_product,
    "umulhi": _high_product,
    "mul64hi": _high_product,
    "umul64hi": _high_product,
    "mul24": lambda x, y: (x << 8 >> 8) * (y << 8 >> 8),
    "umul24": lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.uint32),
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "double_as_longlong": lambda x: x.view(np.int64),
    "longlong_as_double": lambda x: x.view(np.float64),
}
