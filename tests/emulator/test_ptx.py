"""Inline PTX means here what the PTX ISA says: each instruction against a definition, over random and awkward numbers."""

# ruff: noqa: E501, RUF005, UP031  (an instruction and what it means stand on one line)

from __future__ import annotations

import math
import random
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import exact
import pytest
import torch
from exact import BF16, E4M3, E5M2, F16, F32, F64, Format

from crucible import emulator
from crucible.emulator.rewrite import rewrite

THREADS = 96
TYPES = {"r": "unsigned", "l": "unsigned long long", "h": "unsigned short", "f": "float", "d": "double"}
SIZES = {"r": 32, "l": 64, "h": 16, "f": 32, "d": 64}


@dataclass(frozen=True)
class Case:
    """One instruction: operand 0 is the result, the others come from the thread's inputs as bits."""

    text: str
    """With `%0`, `%1`...; several statements where it needs predicates."""
    constraints: str
    """The result's and the inputs'."""
    meaning: Callable[..., int]
    """Bits of the result from bits of the inputs."""
    ulps: int = 0
    """How far from the definition a result may be, for functions that a GPU approximates."""

    @property
    def name(self) -> str:
        found = re.findall(r"[a-z][\w.]*", self.text.replace(".reg .pred p, q;", ""))
        return next(word for word in found if "." in word)


def signed(bits: int, width: int) -> int:
    bits &= (1 << width) - 1
    return bits - (1 << width) if bits >> (width - 1) else bits


def limited(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def integers() -> list[Case]:
    cases = []
    for letter, width in (("r", 32), ("l", 64)):
        ones = (1 << width) - 1
        for kind in "su":
            t = f"{kind}{width}"
            v = (lambda x, w=width: signed(x, w)) if kind == "s" else (lambda x: x)
            two = letter * 3
            cases += [
                Case(f"add.{t} %0, %1, %2;", two, lambda a, b: a + b),
                Case(f"sub.{t} %0, %1, %2;", two, lambda a, b: a - b),
                Case(f"min.{t} %0, %1, %2;", two, lambda a, b, v=v: min(v(a), v(b))),
                Case(f"max.{t} %0, %1, %2;", two, lambda a, b, v=v: max(v(a), v(b))),
                Case(f"mul.lo.{t} %0, %1, %2;", two, lambda a, b: a * b),
                Case(f"mul.hi.{t} %0, %1, %2;", two, lambda a, b, v=v, w=width: v(a) * v(b) >> w),
                Case(f"mad.lo.{t} %0, %1, %2, %3;", letter * 4, lambda a, b, c: a * b + c),
                Case(f"shr.{t} %0, %1, %2;", letter * 2 + "r", lambda a, n, v=v: v(a) >> min(n, 64)),
                Case(f"bfe.{t} %0, %1, %2, %3;", letter * 2 + "rr", lambda a, p, n, k=kind, w=width: bfe(a, p, n, k, w)),
                Case(f"bfind.{t} %0, %1;", "r" + letter, lambda a, v=v, w=width: bfind(v(a))),
            ]  # fmt: skip
        cases += [
            Case(f"sad.s{width} %0, %1, %2, %3;", letter * 4, lambda a, b, c, w=width: c + abs(signed(a, w) - signed(b, w))),
            Case(f"abs.s{width} %0, %1;", letter * 2, lambda a, w=width: abs(signed(a, w))),
            Case(f"neg.s{width} %0, %1;", letter * 2, lambda a: -a),
            Case(f"and.b{width} %0, %1, %2;", letter * 3, lambda a, b: a & b),
            Case(f"or.b{width} %0, %1, %2;", letter * 3, lambda a, b: a | b),
            Case(f"xor.b{width} %0, %1, %2;", letter * 3, lambda a, b: a ^ b),
            Case(f"not.b{width} %0, %1;", letter * 2, lambda a: ~a),
            Case(f"shl.b{width} %0, %1, %2;", letter * 2 + "r", lambda a, n: a << n if n < 64 else 0),
            Case(f"popc.b{width} %0, %1;", "r" + letter, lambda a: a.bit_count()),
            Case(f"clz.b{width} %0, %1;", "r" + letter, lambda a, w=width: w - a.bit_length()),
            Case(f"brev.b{width} %0, %1;", letter * 2, lambda a, w=width: int(f"{a:0{w}b}"[::-1], 2)),
            Case(f"bfi.b{width} %0, %1, %2, %3, %4;", letter * 3 + "rr", lambda a, b, p, n, w=width: bfi(a, b, p, n, w)),
            Case(f"mov.b{width} %0, %1;", letter * 2, lambda a: a),
            Case(f"selp.b{width} %0, %1, %2, p;".join(("{.reg .pred p; setp.lt.u%d p, %%1, %%2; " % width, "}")), letter * 3, min),
        ]  # fmt: skip
        del ones
    return cases + [
        Case("mul.wide.s32 %0, %1, %2;", "lrr", lambda a, b: signed(a, 32) * signed(b, 32)),
        Case("mul.wide.u32 %0, %1, %2;", "lrr", lambda a, b: a * b),
        Case("mad.wide.u32 %0, %1, %2, %3;", "lrrl", lambda a, b, c: a * b + c),
        Case("mul.wide.s16 %0, %1, %2;", "rhh", lambda a, b: signed(a, 16) * signed(b, 16)),
        Case("lop3.b32 %0, %1, %2, %3, 0xea;", "rrrr", lambda a, b, c: (a & b) | c),
        Case("lop3.b32 %0, %1, %2, %3, 0x96;", "rrrr", lambda a, b, c: a ^ b ^ c),
        Case("lop3.b32 %0, %1, %2, %3, 0xb8;", "rrrr", lambda a, b, c: (a & ~b) | (b & c)),
        Case("prmt.b32 %0, %1, %2, %3;", "rrrr", prmt),
        Case("prmt.b32 %0, %1, %2, 0x5410;", "rrr", lambda a, b: (a & 0xFFFF) | (b & 0xFFFF) << 16),
        Case("shf.l.wrap.b32 %0, %1, %2, %3;", "rrrr", lambda a, b, n: ((b << 32 | a) << (n & 31)) >> 32),
        Case("shf.r.clamp.b32 %0, %1, %2, %3;", "rrrr", lambda a, b, n: (b << 32 | a) >> min(n, 32)),
        Case("dp4a.s32.u32 %0, %1, %2, %3;", "rrrr", lambda a, b, c: c + sum(signed(a >> i, 8) * (b >> i & 255) for i in (0, 8, 16, 24))),
        Case("{add.cc.u32 %0, %1, %2; addc.u32 %0, %2, %3;}", "rrrr", lambda a, b, c: b + c + (a + b >> 32)),
        Case("{sub.cc.u32 %0, %1, %2; subc.u32 %0, %2, %3;}", "rrrr", lambda a, b, c: b - c - (a < b)),
        Case("mov.b64 %0, {%1, %2};", "lrr", lambda a, b: a | b << 32),
        Case("{.reg .b32 lo; mov.b64 {lo, %0}, %1;}", "rl", lambda a: a >> 32),
        Case("{.reg .b16 lo, hi; mov.b32 {lo, hi}, %1; mov.b32 %0, {hi, lo};}", "rr", lambda a: a >> 16 | a << 16),
        Case("{.reg .pred p, q; setp.gt.s32 p|q, %1, %2; mov.u32 %0, 1; @q mov.u32 %0, %3; @!q add.u32 %0, %0, 1;}", "rrrr",
             lambda a, b, c: 2 if signed(a, 32) > signed(b, 32) else c),
        Case("{.reg .pred p, q; setp.ne.u32 q, %1, 0; setp.lo.and.u32 p, %1, %2, q; selp.u32 %0, %1, %2, p;}", "rrr",
             lambda a, b: a if a < b and a else b),
        Case("{.reg .pred p; .reg .u32 i; mov.u32 i, 0; mov.u32 %0, 0; more: add.u32 i, i, 1; add.u32 %0, %0, i; "
             "setp.lt.u32 p, i, 5; @p bra more;}", "rr", lambda a: 15),
        Case("cvt.u16.u32 %0, %1;", "hr", lambda a: a),
        Case("cvt.s64.s32 %0, %1;", "lr", lambda a: signed(a, 32)),
        Case("cvt.sat.s8.s32 %0, %1;", "rr", lambda a: limited(signed(a, 32), -128, 127)),
        Case("cvt.u32.u8 %0, %1;", "rr", lambda a: a & 255),
    ]  # fmt: skip


def bfe(a: int, position: int, length: int, kind: str, width: int) -> int:
    position, length = position & 255, length & 255
    fill = kind == "s" and length and a >> min(position + length - 1, width - 1) & 1
    bits = [a >> position + i & 1 if i < length and position + i < width else int(fill) for i in range(width)]
    return sum(bit << i for i, bit in enumerate(bits))


def bfi(a: int, b: int, position: int, length: int, width: int) -> int:
    position, length = position & 255, length & 255
    for i in range(length):
        if position + i < width:
            b = b & ~(1 << position + i) | (a >> i & 1) << position + i
    return b


def bfind(a: int) -> int:
    return (~a if a < 0 else a).bit_length() - 1


def prmt(a: int, b: int, selector: int) -> int:
    source, out = b << 32 | a, 0
    for i in range(4):
        pick = selector >> 4 * i & 15
        byte = source >> 8 * (pick & 7) & 255
        out |= ((255 if byte & 128 else 0) if pick & 8 else byte) << 8 * i
    return out


def rounded(form: Format, operation: Callable[..., Any], how: str = "rn") -> Callable[..., int]:
    """An operation on values, as one on bits."""
    return lambda *bits: form.encode(operation(*(form.decode(one) for one in bits)), how)


def pairs(one: Callable[..., int]) -> Callable[..., int]:
    """The same on both halves of a word."""
    return lambda *words: one(*(word & 0xFFFF for word in words)) | one(*(word >> 16 for word in words)) << 16


def fused(a: Any, b: Any, c: Any, how: str = "rn") -> Any:
    return exact.add(exact.mul(a, b), c, how)


def least(a: Any, b: Any) -> Any:
    if any(isinstance(v, float) and math.isnan(v) for v in (a, b)):
        return b if isinstance(a, float) and math.isnan(a) else a
    return b if b < a or (a == b and exact.sign(b) < 0) else a


def most(a: Any, b: Any) -> Any:
    if any(isinstance(v, float) and math.isnan(v) for v in (a, b)):
        return b if isinstance(a, float) and math.isnan(a) else a
    return b if b > a or (a == b and exact.sign(b) > 0) else a


def unit(a: Any) -> Any:
    return a if 0 < a < 1 else exact.Fraction(1) if a >= 1 else exact.Fraction(0)


def positive(a: Any) -> Any:
    return a if (isinstance(a, float) and math.isnan(a)) or a > 0 else exact.Fraction(0)


def floats() -> list[Case]:
    cases = []
    for mode, how in (("rn", "rn"), ("rz", "rz"), ("rm", "rd"), ("rp", "ru")):
        for letter, form in (("f", F32), ("d", F64)):
            t = f"{mode}.f{form.bits}"
            cases += [
                Case(f"add.{t} %0, %1, %2;", letter * 3, rounded(form, lambda a, b, h=how: exact.add(a, b, h), how)),
                Case(f"mul.{t} %0, %1, %2;", letter * 3, rounded(form, exact.mul, how)),
                Case(f"div.{t} %0, %1, %2;", letter * 3, rounded(form, exact.div, how)),
                Case(
                    f"fma.{t} %0, %1, %2, %3;", letter * 4, rounded(form, lambda a, b, c, h=how: fused(a, b, c, h), how)
                ),
            ]
        cases += [
            Case(f"cvt.{mode}.f32.f64 %0, %1;", "fd", lambda a, h=how: F32.encode(F64.decode(a), h)),
            Case(f"cvt.{mode}.f32.s32 %0, %1;", "fr", lambda a, h=how: F32.encode(exact.Fraction(signed(a, 32)), h)),
            Case(f"cvt.{mode}.f64.u64 %0, %1;", "dl", lambda a, h=how: F64.encode(exact.Fraction(a), h)),
            Case(f"cvt.{mode}.f16.f32 %0, %1;", "hf", lambda a, h=how: F16.encode(F32.decode(a), h)),
            Case(f"cvt.{mode}.bf16.f32 %0, %1;", "hf", lambda a, h=how: BF16.encode(F32.decode(a), h)),
            Case(f"cvt.{mode}i.s32.f32 %0, %1;", "rf", lambda a, h=how: to_integer(F32.decode(a), h, -(1 << 31), (1 << 31) - 1)),
            Case(f"cvt.{mode}i.u32.f32 %0, %1;", "rf", lambda a, h=how: to_integer(F32.decode(a), h, 0, (1 << 32) - 1)),
            Case(f"cvt.{mode}i.s16.f16 %0, %1;", "hh", lambda a, h=how: to_integer(F16.decode(a), h, -(1 << 15), (1 << 15) - 1)),
        ]  # fmt: skip
    for t, form in (("f16", F16), ("bf16", BF16)):
        three, add, mul, fma = "h" * 3, rounded(form, exact.add), rounded(form, exact.mul), rounded(form, fused)
        cases += [
            Case(f"add.rn.{t} %0, %1, %2;", three, add),
            Case(f"mul.rn.{t} %0, %1, %2;", three, mul),
            Case(f"fma.rn.{t} %0, %1, %2, %3;", "hhhh", fma),
            Case(f"fma.rn.relu.{t} %0, %1, %2, %3;", "hhhh", lambda *x, f=form, g=fma: f.encode(positive(f.decode(g(*x))))),
            Case(f"fma.rn.{t}x2 %0, %1, %2, %3;", "rrrr", pairs(fma)),
            Case(f"add.rn.{t}x2 %0, %1, %2;", "rrr", pairs(add)),
            Case(f"min.{t}x2 %0, %1, %2;", "rrr", pairs(rounded(form, least))),
            Case(f"max.NaN.{t} %0, %1, %2;", three, rounded(form, lambda a, b: math.nan if a != a or b != b else most(a, b))),
            Case(f"cvt.rn.{t}x2.f32 %0, %1, %2;", "rff", lambda a, b, f=form: f.encode(F32.decode(b)) | f.encode(F32.decode(a)) << 16),
            Case(f"cvt.rn.relu.{t}x2.f32 %0, %1, %2;", "rff",
                 lambda a, b, f=form: f.encode(positive(F32.decode(b))) | f.encode(positive(F32.decode(a))) << 16),
            Case(f"cvt.f32.{t} %0, %1;", "fh", lambda a, f=form: F32.encode(f.decode(a))),
        ]  # fmt: skip
    for t, form in (("e4m3", E4M3), ("e5m2", E5M2)):
        cases += [
            Case(f"{{.reg .b16 p; cvt.rn.satfinite.{t}x2.f32 p, %1, %2; mov.b32 %0, {{p, p}};}}", "rff",
                 lambda a, b, f=form: 0x10001 * (finite(f, F32.decode(b)) | finite(f, F32.decode(a)) << 8)),
            Case(f"cvt.rn.f16x2.{t}x2 %0, %1;", "rh", lambda a, f=form: F16.encode(f.decode(a & 255)) | F16.encode(f.decode(a >> 8)) << 16),
        ]  # fmt: skip
    return cases + [
        Case("add.ftz.f32 %0, %1, %2;", "fff", lambda a, b: flush(rounded(F32, exact.add)(flush(a), flush(b)))),
        Case("mul.rn.ftz.sat.f32 %0, %1, %2;", "fff",
             lambda a, b: flush(rounded(F32, lambda x, y: unit(exact.mul(x, y)) if exact.mul(x, y) == exact.mul(x, y) else exact.Fraction(0))(flush(a), flush(b)))),
        Case("min.f32 %0, %1, %2;", "fff", rounded(F32, least)),
        Case("max.f32 %0, %1, %2;", "fff", rounded(F32, most)),
        Case("abs.f32 %0, %1;", "ff", lambda a: a & 0x7FFFFFFF),
        Case("neg.f32 %0, %1;", "ff", lambda a: a ^ 0x80000000),
        Case("{.reg .pred p; setp.ltu.f32 p, %1, %2; selp.b32 %0, 1, 0, p;}", "rff", lambda a, b: int(not F32.decode(a) >= F32.decode(b))),
        Case("{.reg .pred p; setp.ne.f32 p, %1, %2; selp.b32 %0, 1, 0, p;}", "rff",
             lambda a, b: int(F32.decode(a) < F32.decode(b) or F32.decode(a) > F32.decode(b))),
        Case("sqrt.rn.f32 %0, %1;", "ff", lambda a: of_double(math.sqrt, a), 0),
        Case("rcp.approx.ftz.f32 %0, %1;", "ff", lambda a: flush(rounded(F32, lambda x: exact.div(exact.Fraction(1), x))(flush(a))), 1),
        Case("ex2.approx.ftz.f32 %0, %1;", "ff", lambda a: flush(of_double(lambda x: 2.0**x, flush(a))), 2),
        Case("lg2.approx.f32 %0, %1;", "ff", lambda a: of_double(math.log2, a), 2),
        Case("tanh.approx.f32 %0, %1;", "ff", lambda a: of_double(math.tanh, a), 2),
        Case("cvt.rna.tf32.f32 %0, %1;", "rf", lambda a: a & 0xFFFFE000 if a & 0x7F800000 == 0x7F800000 else a + 0x1000 & 0xFFFFE000),
        Case("mov.b32 %0, 0f3F800000;", "fr", lambda a: 0x3F800000),
        Case("cvt.f64.f32 %0, %1;", "df", lambda a: F64.encode(F32.decode(a))),
        Case("cvt.rni.f32.f32 %0, %1;", "ff", lambda a: F32.encode(integral(F32.decode(a)))),
    ]  # fmt: skip


def integral(a: Any) -> Any:
    if isinstance(a, float):
        return a
    return exact.Fraction(round(a)) if round(a) else (-0.0 if a < 0 else exact.Fraction(0))


def to_integer(a: Any, how: str, low: int, high: int) -> int:
    if isinstance(a, float) and not math.isfinite(a):
        return 0 if math.isnan(a) else high if a > 0 else low
    whole = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}[how](a)
    return limited(whole, low, high)


def finite(form: Format, a: Any) -> int:
    """With the largest number for what is beyond it."""
    bits = form.encode(a)
    beyond = bits & (form.sign - 1) > form.most and a == a
    return form.most | bits & form.sign if beyond else bits


def flush(bits: int) -> int:
    return bits if bits & 0x7F800000 else bits & 0x80000000


def of_double(function: Callable[[float], float], bits: int) -> int:
    (value,) = struct.unpack("f", struct.pack("I", bits))
    try:
        return F32.encode(exact.from_float(function(value)))
    except OverflowError:
        return F32.infinity
    except ValueError:
        return F32.encode(-math.inf) if value == 0 else F32.nan


CASES = integers() + floats()
AWKWARD = {
    16: [0, 1, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7F80, 0x3C00, 0x7BFF, 0x3F80, 0x7F7F, 0x0400, 0x8001],
    32: [0, 1, 2, 31, 32, 33, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000,
         0x00000001, 0x00800000, 0x7F7FFFFF, 0xBF800000, 0x43E00000, 0x43E80000, 0x477FEFFF, 0x477FF000, 0x40200000],
    64: [0, 1, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, 0x7FF0000000000000, 0x3FF0000000000000, 0x7FF8000000000000],
}  # fmt: skip


def bits(width: int, letter: str, chance: random.Random) -> int:
    """Random bits: awkward ones, any, and numbers of moderate size."""
    kind = chance.random()
    if kind < 0.25:
        return chance.choice(AWKWARD[width])
    if letter == "f" and kind < 0.75:
        return int(struct.unpack("I", struct.pack("f", chance.gauss(0, 10.0 ** chance.randint(-6, 5))))[0])
    if letter == "d" and kind < 0.75:
        return int(struct.unpack("Q", struct.pack("d", chance.gauss(0, 10.0 ** chance.randint(-6, 5))))[0])
    if letter == "h" and kind < 0.75:
        return chance.choice([0x3C00, 0x3F80, 0x4100, 0xBC00]) + chance.randrange(1 << 9)
    return chance.getrandbits(width) >> chance.choice([0, 0, width // 2, width - 6])


@cache
def inputs() -> list[list[list[int]]]:
    chance = random.Random(7)
    return [
        [[bits(SIZES[letter], letter, chance) for letter in case.constraints[1:]] for _ in range(THREADS)]
        for case in CASES
    ]


def statement(case: Case, at: int) -> str:
    names = "abce"[: len(case.constraints) - 1]
    declared = "".join(
        f"{TYPES[letter]} {name} = read<{TYPES[letter]}>(in[({at} * {THREADS} + t) * 4 + {i}]); "
        for i, (name, letter) in enumerate(zip(names, case.constraints[1:], strict=True))
    )
    given = ", ".join(f'"{letter}"({name})' for name, letter in zip(names, case.constraints[1:], strict=True))
    text = case.text.replace('"', '\\"')
    result = case.constraints[0]
    return f'{{ {declared}{TYPES[result]} d; asm("{text}" : "=&{result}"(d) : {given}); out[{at} * {THREADS} + t] = bits(d); }}\n'


SCALAR = r"""
template <class T> __device__ T read(long long v) { return *reinterpret_cast<T*>(&v); }
template <class T> __device__ long long bits(T v) { unsigned long long w = 0; *reinterpret_cast<T*>(&w) = v; return (long long)w; }
"""


def source() -> str:
    """Kernels alone, for nvcc too: sixteen cases each, since one function of all takes g++ long."""
    chunks = [range(i, min(i + 16, len(CASES))) for i in range(0, len(CASES), 16)]
    kernels = "".join(
        f"__global__ void scalar_{k}(const long long* in, long long* out) {{\n    const int t = threadIdx.x;\n"
        + "".join(statement(CASES[at], at) for at in chunk)
        + "}\n"
        for k, chunk in enumerate(chunks)
    )
    return SCALAR + kernels


def host() -> str:
    launches = "".join(
        f"    scalar_{k}<<<1, {THREADS}>>>((const long long*)in.data_ptr<int64_t>(), (long long*)out.data_ptr<int64_t>());\n"
        for k in range((len(CASES) + 15) // 16)
    )
    return (
        "torch::Tensor scalar(torch::Tensor in) {\n    auto out = torch::zeros({%d, %d}, in.options());\n%s    return out;\n}\n"
        % (len(CASES), THREADS, launches)
    )


@cache
def results() -> list[list[int]]:
    built = emulator.load_inline("ptx_scalar", "torch::Tensor scalar(torch::Tensor in);", source() + host(), ["scalar"])
    padded = [[[signed(one, 64) for one in row] + [0] * (4 - len(row)) for row in rows] for rows in inputs()]
    emulator.forget()
    found: list[list[int]] = built.scalar(torch.tensor(padded)).tolist()
    assert emulator.faults() == ()
    return found


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: CASES[at].name)
def test_an_instruction_gives_what_its_definition_says(at: int) -> None:
    case, width = CASES[at], SIZES[CASES[at].constraints[0]]
    for given, got in zip(inputs()[at], results()[at], strict=True):
        want, shown = case.meaning(*given) & (1 << width) - 1, got & (1 << width) - 1
        assert abs(want - shown) <= case.ulps or both_nan(case, want, shown), (
            case.text,
            [hex(one) for one in given],
            hex(shown),
            hex(want),
        )


def both_nan(case: Case, want: int, got: int) -> bool:
    """NaN of 32 and 64 bits keep what x86 makes of them; shorter ones are the GPU's."""
    form = {"f": F32, "d": F64}.get(case.constraints[0])
    return form is not None and all(math.isnan(form.decode(one)) for one in (want, got))


COLLECTIVE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>

// ---- lanes: 32 values and 32 places to 8 results a lane
__global__ void lanes(const int* x, const int* from, int* out) {
    const int lane = threadIdx.x;
    unsigned v = x[lane], b = from[lane], d[8];
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(d[0]) : "r"(v), "r"(b));
    asm volatile("{.reg .pred p; shfl.sync.down.b32 %0|p, %2, 3, 0x181f, -1; selp.u32 %1, 1, 0, p;}" : "=r"(d[1]), "=r"(d[2]) : "r"(v));
    asm volatile("shfl.sync.bfly.b32 %0, %1, 5, 31, 0xffffffff;" : "=r"(d[3]) : "r"(v));
    asm volatile("shfl.sync.up.b32 %0, %1, 2, 0x1000, 0xffffffff;" : "=r"(d[4]) : "r"(v));
    asm volatile("{.reg .pred p; setp.gt.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}" : "=r"(d[5]) : "r"(v));
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(d[6]) : "r"(v));
    asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(d[7]) : "r"(b));
    unsigned id;
    asm("mov.u32 %0, %%laneid;" : "=r"(id));
    for (int i = 0; i < 8; ++i) out[8 * id + i] = d[i];
}

// ---- memory: vectors by one access, hints, predicates, atomics of several types
__global__ void memory(const float* x, float* out, unsigned* counts, __half2* halves, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ unsigned total;
    if (threadIdx.x == 0) total = 0;
    asm volatile("bar.sync 0;" ::: "memory");
    unsigned at = (unsigned)__cvta_generic_to_shared(&total);
    if (i < n) {
        float a, b, c, d;
        asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(x + 4 * i));
        asm volatile("{\n .reg .pred p;\n setp.gt.f32 p, %1, 0f00000000;\n"
                     " @p st.global.cs.v2.f32 [%0], {%1, %2};\n @!p st.global.v2.f32 [%0], {%2, %1};\n}"
                     :: "l"(out + 4 * i), "f"(a), "f"(b) : "memory");
        asm volatile("st.global.v2.b32 [%0 + 8], {%1, %2};" :: "l"(out + 4 * i), "r"(__float_as_uint(c)), "r"(__float_as_uint(d)) : "memory");
        unsigned old, one = 0x3c003c00;
        asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(at), "r"(2u) : "memory");
        asm volatile("red.global.max.u32 [%0], %1;" :: "l"(counts), "r"(old) : "memory");
        asm volatile("red.relaxed.gpu.global.add.noftz.f16x2 [%0], %1;" :: "l"(halves), "r"(one) : "memory");
        asm volatile("atom.global.cas.b32 %0, [%1], 0, 5;" : "=r"(old) : "l"(counts + 2) : "memory");
        asm volatile("red.global.add.u32 [%0], 1;" :: "l"(counts + 3 + (old == 5)) : "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("red.global.add.u32 [%0], %1;" :: "l"(counts + 1), "r"(total) : "memory");
}

// ---- an mbarrier waited for in a loop of PTX; the values cross it
__global__ void waited(const int* x, int* out) {
    __shared__ unsigned long long barrier;
    __shared__ int values[64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" :: "r"(at) : "memory");
    __syncthreads();
    for (unsigned phase = 0; phase < 2; ++phase) {
        if (phase == 0) values[threadIdx.x] = x[threadIdx.x];
        asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.shared::cta.b64 state, [%0];\n}" :: "r"(at) : "memory");
        asm volatile("{\n .reg .pred P1;\n LAB_WAIT:\n mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
                     " @P1 bra DONE;\n bra LAB_WAIT;\n DONE:\n}" :: "r"(at), "r"(phase) : "memory");
        if (phase == 0) out[threadIdx.x] = values[63 - threadIdx.x];
    }
}

// ---- products: bytes, doubles, halves into halves, eight-bit floats; a row of A and a column of B a lane's share
__global__ void products(const signed char* a8, const signed char* b8, int* c8, const double* a64, const double* b64, double* c64,
                         const __half* ah, const __half* bh, __half* ch, const unsigned char* af, const unsigned char* bf, float* cf) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const int *a = (const int*)a8, *b = (const int*)b8;  // 16 x 32 by rows, 32 x 8 by columns
    int d[4];
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]), "r"(a[(g + 8) * 8 + t + 4]),
                   "r"(b[g * 8 + t]), "r"(b[g * 8 + t + 4]), "r"(1));
    for (int e = 0; e < 4; ++e) c8[(g + e / 2 * 8) * 8 + t * 2 + e % 2] = d[e];
    double s0, s1, zero = 0;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%4,%4};"
                 : "=d"(s0), "=d"(s1) : "d"(a64[g * 4 + t]), "d"(b64[g * 4 + t]), "d"(zero));
    c64[g * 8 + t * 2] = s0, c64[g * 8 + t * 2 + 1] = s1;
    const unsigned *p = (const unsigned*)ah, *q = (const unsigned*)bh;  // 16 x 16 by rows, 16 x 8 by columns
    unsigned h0, h1, none = 0;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%8};"
                 : "=r"(h0), "=r"(h1) : "r"(p[g * 8 + t]), "r"(p[(g + 8) * 8 + t]), "r"(p[g * 8 + t + 4]), "r"(p[(g + 8) * 8 + t + 4]),
                   "r"(q[g * 8 + t]), "r"(q[g * 8 + t + 4]), "r"(none));
    ((unsigned*)ch)[g * 4 + t] = h0, ((unsigned*)ch)[(g + 8) * 4 + t] = h1;
    const unsigned *u = (const unsigned*)af, *v = (const unsigned*)bf;  // 16 x 32 e4m3, 32 x 8 e5m2
    float f[4], nothing = 0;
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(f[0]), "=f"(f[1]), "=f"(f[2]), "=f"(f[3])
                 : "r"(u[g * 8 + t]), "r"(u[(g + 8) * 8 + t]), "r"(u[g * 8 + t + 4]), "r"(u[(g + 8) * 8 + t + 4]),
                   "r"(v[g * 8 + t]), "r"(v[g * 8 + t + 4]), "f"(nothing));
    for (int e = 0; e < 4; ++e) cf[(g + e / 2 * 8) * 8 + t * 2 + e % 2] = f[e];
}

// ---- what stmatrix stores, ldmatrix loads; transposed once
__global__ void turned(const unsigned* x, unsigned* out, unsigned short* shown) {
    __shared__ __align__(16) unsigned short tile[4 * 64];
    unsigned v[4], at = (unsigned)__cvta_generic_to_shared(tile + 8 * threadIdx.x);
    for (int i = 0; i < 4; ++i) v[i] = x[32 * i + threadIdx.x];
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(at), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
    __syncwarp();
    for (int i = 0; i < 8; ++i) shown[32 * i + threadIdx.x] = tile[32 * i + threadIdx.x];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at));
    for (int i = 0; i < 4; ++i) out[32 * i + threadIdx.x] = v[i];
}
"""
COLLECTIVE_HOST = r"""
#define I(t) t.data_ptr<int>()
torch::Tensor run_lanes(torch::Tensor x, torch::Tensor from) { auto o = torch::zeros({32, 8}, x.options()); lanes<<<1, 32>>>(I(x), I(from), I(o)); return o; }
std::vector<torch::Tensor> run_memory(torch::Tensor x, int n) {
    auto o = torch::empty_like(x), c = torch::zeros({5}, x.options().dtype(torch::kInt)), h = torch::zeros({2}, x.options().dtype(torch::kHalf));
    memory<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), o.data_ptr<float>(), (unsigned*)I(c), (__half2*)h.data_ptr<at::Half>(), n);
    return {o, c, h};
}
torch::Tensor run_waited(torch::Tensor x) { auto o = torch::empty_like(x); waited<<<1, 64>>>(I(x), I(o)); return o; }
std::vector<torch::Tensor> run_products(torch::Tensor a, torch::Tensor b, torch::Tensor x, torch::Tensor y, torch::Tensor p, torch::Tensor q,
                                        torch::Tensor u, torch::Tensor v) {
    auto c = torch::empty({16, 8}, a.options().dtype(torch::kInt)), z = torch::empty({8, 8}, x.options());
    auto r = torch::empty({16, 8}, p.options()), w = torch::empty({16, 8}, a.options().dtype(torch::kFloat));
    products<<<1, 32>>>((signed char*)a.data_ptr<int8_t>(), (signed char*)b.data_ptr<int8_t>(), I(c), x.data_ptr<double>(), y.data_ptr<double>(),
        z.data_ptr<double>(), (__half*)p.data_ptr<at::Half>(), (__half*)q.data_ptr<at::Half>(), (__half*)r.data_ptr<at::Half>(),
        u.data_ptr<uint8_t>(), v.data_ptr<uint8_t>(), w.data_ptr<float>());
    return {c, z, r, w};
}
std::vector<torch::Tensor> run_turned(torch::Tensor x) {
    auto o = torch::empty_like(x), s = torch::empty({256}, x.options().dtype(torch::kShort));
    turned<<<1, 32>>>((unsigned*)I(x), (unsigned*)I(o), (unsigned short*)s.data_ptr<int16_t>()); return {o, s};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("lanes", &run_lanes); m.def("memory", &run_memory); m.def("waited", &run_waited); m.def("products", &run_products); m.def("turned", &run_turned);
}
"""


@cache
def collective() -> Any:
    """The extension, or why there is none."""
    try:
        return emulator.load_inline("ptx_collective", "", COLLECTIVE + COLLECTIVE_HOST)
    except RuntimeError as error:
        return str(error)


def run(name: str, *arguments: Any) -> Any:
    built = collective()
    assert not isinstance(built, str), built
    emulator.forget()
    result = getattr(built, name)(*arguments)
    assert [fault.words for fault in emulator.faults() if fault.kind != "never-ran"] == []
    return result


def test_lanes_shuffle_vote_and_reduce() -> None:
    chance = random.Random(3)
    x, where = [chance.randint(-99, 99) for _ in range(32)], [chance.randrange(16) for _ in range(32)]
    got = run("lanes", torch.tensor(x).int(), torch.tensor(where).int()).tolist()
    ballot = signed(sum((value > 0) << i for i, value in enumerate(x)), 32)
    for lane, row in enumerate(got):
        inside = lane % 8 + 3 < 8  # 0x181f: segments of eight lanes
        up = lane - 2 if lane % 16 >= 2 else lane
        matches = signed(sum((other == where[lane]) << i for i, other in enumerate(where)), 32)
        assert row == [
            x[where[lane]],
            x[lane + 3] if inside else x[lane],
            int(inside),
            x[lane ^ 5],
            x[up],
            ballot,
            max(x),
            matches,
        ]


def test_memory_is_read_written_and_added_to() -> None:
    x = torch.randn(4 * 150, generator=torch.Generator().manual_seed(1))
    out, counts, halves = run("memory", x, 150)
    want = x.reshape(150, 4).clone()
    swapped = want[:, 0] <= 0
    want[swapped, :2] = want[swapped][:, [1, 0]]
    assert torch.equal(out.reshape(150, 4), want)
    assert counts.tolist() == [126, 300, 5, 1, 149] and halves.tolist() == [150, 150]


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_an_mbarrier_is_waited_for_and_orders_what_it_should(order: str) -> None:
    x = torch.randint(0, 100, (64,)).int()
    with emulator.schedule(order):
        assert torch.equal(run("waited", x), x.flip(0))


def test_products_of_all_kinds_of_elements() -> None:
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randint(-128, 128, shape, generator=generator).to(torch.int8) for shape in ((16, 32), (8, 32)))
    x, y = (torch.randn(8, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    p, q = torch.randn(16, 16, generator=generator).half(), torch.randn(8, 16, generator=generator).half()
    u, v = (
        torch.randn(16, 32, generator=generator).to(torch.float8_e4m3fn),
        torch.randn(8, 32, generator=generator).to(torch.float8_e5m2),
    )
    c, z, r, w = run("products", a, b, x, y, p, q, u.view(torch.uint8), v.view(torch.uint8))
    assert torch.equal(c, a.int() @ b.int().T + 1)
    torch.testing.assert_close(z, x @ y.T)
    torch.testing.assert_close(r, (p.float() @ q.float().T).half(), rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(w, u.float() @ v.float().T)


def test_matrices_are_stored_and_loaded_turned() -> None:
    x = torch.randint(-(1 << 31), 1 << 31, (128,), generator=torch.Generator().manual_seed(3)).int()
    out, shown = run("turned", x)
    tiles = x.view(torch.int16).reshape(4, 8, 8)
    assert torch.equal(shown.reshape(4, 8, 8), tiles)
    assert torch.equal(out.view(torch.int16).reshape(4, 8, 8), tiles.transpose(1, 2))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('asm("barrier.cluster.arrive.aligned;");', "barrier.cluster.arrive.aligned, line 2"),
        ('asm("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%0}, %1, %2, 1;" : "+r"(a) : "l"(b), "l"(c));', "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8, line 2"),
        ('asm("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, {%4, %4, %4}, %5, 1, 1, 1;" : "+f"(a), "+f"(a), "+f"(a), "+f"(a) : "r"(b), "l"(c));', "wgmma.mma_async"),
        ('asm("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, %4, %4, 1, -1, 1;" : "+f"(a), "+f"(a), "+f"(a), "+f"(a) : "l"(c));', "wgmma.mma_async"),
        ('asm volatile("{\\n"\n"mov.b32 %0, 1;\\n"\n"tcgen05.alloc.b32 [%0], 32;}" : "=r"(x));', "tcgen05.alloc.b32, line 4"),
        ('asm("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0}, {%1}, {%2}, {%3};" : "=f"(a) : "r"(b), "r"(c), "f"(d));', "mma.sync.aligned.m8n8k4"),
        ('asm("atom.global.max.f32 %0, [%1], %2;" : "=f"(a) : "l"(b), "f"(c));', "atom.global.max.f32"),
        ('asm("add.f32 %0, %1, undeclared;" : "=f"(a) : "f"(b));', "operand undeclared"),
        ('asm(TEXT : "=f"(a));', "macro TEXT"),
    ],
)  # fmt: skip
def test_what_has_no_translation_is_named(text: str, named: str) -> None:
    with pytest.raises(emulator.NotCovered, match=re.escape(named)):
        rewrite("\n" + text)


def test_a_statement_in_a_macro_stays_in_its_macro() -> None:
    text = '#define COMMIT() \\\n    asm volatile("cp.async.commit_group;" \\\n        :: )\nint x;'
    lines = rewrite(text).text.split("\n")
    assert len(lines) == 4 and all(line.endswith("\\") for line in lines[:2]) and lines[3] == "int x;"
