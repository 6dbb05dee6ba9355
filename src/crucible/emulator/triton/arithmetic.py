"""What the interpreter computes otherwise than a GPU, or too slowly: bfloat16, products, reductions and scans."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from crucible.emulator.triton.watch import Watch


def install(runtime: Any, watch: Watch) -> None:
    """bfloat16 is 16-bit integers to the interpreter, so it computes in float32 and rounds, as a GPU does."""
    builder, tl = runtime.InterpreterBuilder, runtime.tl
    for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_rsqrt", "create_erf"):
        setattr(builder, name, _widened(runtime, getattr(builder, name)))
    builder.cast_impl = _cast(runtime, builder.cast_impl)
    builder.create_dot = _dot(runtime)
    builder.get_bf16 = lambda self, value: self.cast_impl(self.get_fp32(value), tl.bfloat16)
    for name, function in (("min", np.fmin), ("max", np.fmax)):  # NaN loses against a number, as on a GPU
        setattr(builder, f"create_{name}numf", lambda self, a, b, function=function: self.binary_op(a, b, function))
    runtime._convert_float = _convert(runtime, runtime._convert_float)
    tl.tensor.__index__ = lambda self: int(self.handle.data.item())
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    least = importlib.import_module("triton.backends.nvidia.compiler").min_dot_size(target)
    runtime.interpreter_builder.codegen_fns["min_dot_size"] = least
    runtime.ReduceOps.generic_reduce = _reduce(runtime)
    runtime.ScanOps.generic_scan = _scan(runtime)
    options = runtime.interpreter_builder.options
    runtime.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)

    def __getattr__(self: Any, name: str) -> Any:
        if name.startswith(("create_", "get_")):
            watch.beyond(name.removeprefix("create_"))
        raise AttributeError(name)

    builder.__getattr__ = __getattr__
    builder.create_inline_asm = lambda *_, **__: watch.beyond("inline_asm_elementwise")


def to_float32(bits: Any) -> Any:
    """bfloat16, as 16-bit integers, in float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat16(values: Any) -> Any:
    """float32, rounded to nearest even, as 16-bit integers."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits >> np.uint32(16)) | np.uint32(0x40)
    chosen = np.where(np.isnan(bits.view(np.float32)), nan, rounded)
    return chosen.astype(np.uint16).reshape(np.shape(values))


def _is_bfloat16(runtime: Any, value: Any) -> bool:
    if not isinstance(value, runtime.TensorHandle) or value.data.dtype != np.uint16:
        return False
    return bool(value.dtype.scalar == runtime.tl.bfloat16)


_FLOATS = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8e5": torch.float8_e5m2,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}


def _convert(runtime: Any, own: Callable[..., Any]) -> Callable[..., Any]:
    """Conversions of floats as bits; the interpreter's own loses the carry where rounding fills the mantissa."""

    def convert(values: Any, source: Any, target: Any, rounding: Any) -> Any:
        names = (source.name, target.name)
        if rounding == runtime._ir.ROUNDING_MODE.RTZ or not all(name in _FLOATS for name in names):
            return own(values, source, target, rounding)
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            given = torch.from_numpy(np.array(values)).view(_FLOATS[source.name])
            kind = _FLOATS[target.name]
            if kind.itemsize == 1:  # a GPU saturates
                given = given.float().clamp(torch.finfo(kind).min, torch.finfo(kind).max)
            bits = given.to(kind).contiguous()
            return bits.view(getattr(torch, f"uint{kind.itemsize * 8}")).numpy()

    return convert


def _widened(runtime: Any, operation: Callable[..., Any]) -> Callable[..., Any]:
    handle, tl = runtime.TensorHandle, runtime.tl

    def widened(self: Any, *args: Any) -> Any:
        if not any(_is_bfloat16(runtime, value) for value in args):
            return operation(self, *args)
        wide = [handle(to_float32(v.data), tl.float32) if _is_bfloat16(runtime, v) else v for v in args]
        out = operation(self, *wide)
        return out if out.data.dtype == bool else handle(to_bfloat16(out.data), tl.bfloat16)

    return widened


def _cast(runtime: Any, cast: Callable[..., Any]) -> Callable[..., Any]:
    handle, tl = runtime.TensorHandle, runtime.tl

    def converted(self: Any, src: Any, dst_type: Any) -> Any:
        target = dst_type.scalar
        if _is_bfloat16(runtime, src):
            if target == tl.bfloat16:
                return src
            src = handle(to_float32(src.data), tl.float32)
        if target == tl.bfloat16:
            return handle(to_bfloat16(src.data.astype(np.float32)), tl.bfloat16)
        return src if src.dtype.scalar == target == tl.float32 else cast(self, src, dst_type)

    return converted


def _dot(runtime: Any) -> Callable[..., Any]:
    """Operands widened, so that BLAS takes them; integers in float64, where their sums are exact."""
    handle, tl = runtime.TensorHandle, runtime.tl

    def dot(self: Any, a: Any, b: Any, acc: Any, *_: Any) -> Any:
        kind = np.float64 if acc.data.dtype.kind == "i" or acc.data.dtype == np.float64 else np.float32
        product = np.matmul(_numbers(runtime, a, kind), _numbers(runtime, b, kind))
        is_bfloat16 = _is_bfloat16(runtime, acc)
        total = product + (to_float32(acc.data) if is_bfloat16 else acc.data)
        return handle(to_bfloat16(total) if is_bfloat16 else total.astype(acc.data.dtype), acc.dtype.scalar)

    def _numbers(runtime: Any, operand: Any, kind: Any) -> Any:
        data = operand.data
        if _is_bfloat16(runtime, operand):
            data = to_float32(data)
        elif operand.dtype.scalar.is_floating() and operand.dtype.scalar.primitive_bitwidth == 8:
            data = runtime._convert_float(data, operand.dtype.scalar, tl.float16, None).view(np.float16)
        return data.astype(kind)

    return dot


def _combined(self: Any, runtime: Any, left: list[Any], right: list[Any], types: list[Any]) -> list[Any]:
    """The candidate's function over whole arrays."""
    operands = [self.to_tensor(part, kind) for parts in (left, right) for part, kind in zip(parts, types, strict=True)]
    out = self.combine_fn.fn(*operands)
    outs = out if isinstance(out, tuple) else (out,)
    arrays = [value.handle.data if isinstance(value, runtime.tl.core.tensor) else np.asarray(value) for value in outs]
    return [np.broadcast_to(array, part.shape).astype(part.dtype) for array, part in zip(arrays, left, strict=True)]


def _reduce(runtime: Any) -> Callable[..., Any]:
    """Neighbours by pairs: log2(n) calls of the function where the interpreter makes n for each element."""

    def reduce(self: Any, given: Any) -> list[Any]:
        tensors, axis = self.unravel(given, self.axis)
        types = [tensor.dtype for tensor in tensors]
        whole = tensors[0].handle.data.ndim if self.axis is not None else given[0].handle.data.ndim
        parts = [np.moveaxis(tensor.handle.data, axis, 0) for tensor in tensors]
        while len(parts[0]) > 1:
            parts = _combined(self, runtime, [part[0::2] for part in parts], [part[1::2] for part in parts], types)
        results = [part[0] for part in parts]
        if self.keep_dims:
            results = [np.expand_dims(r, axis) if self.axis is not None else r.reshape((1,) * whole) for r in results]
        return [
            self.to_tensor(result if result.ndim else result.item(), kind)
            for result, kind in zip(results, types, strict=True)
        ]

    return reduce


def _scan(runtime: Any) -> Callable[..., Any]:
    """Each step doubles how far an element has looked back."""

    def scan(self: Any, given: Any) -> list[Any]:
        types = [tensor.dtype for tensor in given]
        parts = [np.moveaxis(tensor.handle.data, self.axis, 0) for tensor in given]
        length, step = len(parts[0]), 1
        while step < length:
            both = _combined(self, runtime, [np.roll(part, step, axis=0) for part in parts], parts, types)
            parts = [np.concatenate([part[:step], new[step:]]) for part, new in zip(parts, both, strict=True)]
            step *= 2
        return [self.to_tensor(np.moveaxis(part, 0, self.axis), kind) for part, kind in zip(parts, types, strict=True)]

    return scan
