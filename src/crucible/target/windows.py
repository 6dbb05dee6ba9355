"""Device functions for windows whose elements come one after another, in registers."""

from __future__ import annotations

_TAKE = """\
// A window's largest value so far: the first of several, or the last NaN. What is kept with it is selected by sums
// under a condition, x + -0 = x: selections would go through the pipe of the comparisons.
__device__ __forceinline__ void {name}(float& best, float& kept, {chosen}float value, float product, int number) {{
    asm("{{\\n"
        ".reg .pred first, taken;\\n"
        "setp.eq.s32 first, {number}, 0;\\n"
        "setp.nan.or.f32 first, {value}, {value}, first;\\n"
        "setp.gt.or.f32 taken, {value}, %0, first;\\n"
        "@taken add.f32 %0, {value}, 0f80000000;\\n"
        "@taken add.f32 %1, {product}, 0f80000000;\\n"{choose}
        "}}"
        : "+f"(best), "+f"(kept){output}
        : "f"(value), "f"(product), "r"(number));
}}"""
_PLAIN = {
    "name": "take_of_largest", "chosen": "", "value": "%2", "product": "%3", "number": "%4", "choose": "", "output": "",
}  # fmt: skip
_NUMBERED = {
    "name": "take_number_of_largest",
    "chosen": "int& chosen, ",
    "value": "%3",
    "product": "%4",
    "number": "%5",
    "choose": '\n        "@taken mov.b32 %2, %5;\\n"',
    "output": ', "+r"(chosen)',
}
FOLLOW = """\
// The largest of a window so far, or the last NaN, and its number, a float of those bits. Both are selected by sums
// under a condition, as `take_of_largest` does; a number is 0 times the one before and itself, or the sum would be made
// once and selections of it.
__device__ __forceinline__ void follow_of_largest(float& best, float& chosen, float product, float number) {
    asm("{\\n"
        ".reg .pred taken;\\n"
        "setp.nan.f32 taken, %2, %2;\\n"
        "setp.gt.or.f32 taken, %2, %0, taken;\\n"
        "@taken add.f32 %0, %2, 0f80000000;\\n"
        "@taken fma.rn.f32 %1, %1, 0f00000000, %3;\\n"
        "}"
        : "+f"(best), "+f"(chosen)
        : "f"(product), "f"(number));
}"""
EXCHANGED = """\
// Of four lanes, each with two bytes of each of four neighbouring tiles, the bytes of the tile of its own number.
__device__ __forceinline__ Pack<unsigned char, 8> exchanged_bytes(const unsigned (&pairs)[4]) {
    const int own = threadIdx.x % 4;
    const unsigned low = pairs[0] | pairs[1] << 16, high = pairs[2] | pairs[3] << 16;
    const unsigned far = __shfl_xor_sync(0xffffffffu, own & 2 ? low : high, 2), near = own & 2 ? high : low;
    const unsigned first = own & 2 ? far : near, second = own & 2 ? near : far;  // of lanes own % 2 and own % 2 + 2
    const unsigned evens = __byte_perm(first, second, 0x5410), odds = __byte_perm(first, second, 0x7632);
    const unsigned mine = own & 1 ? odds : evens, other = __shfl_xor_sync(0xffffffffu, own & 1 ? evens : odds, 1);
    const unsigned even = own & 1 ? other : mine, odd = own & 1 ? mine : other;
    Pack<unsigned char, 8> bytes;
    reinterpret_cast<uint2&>(bytes) = {__byte_perm(even, odd, 0x5410), __byte_perm(even, odd, 0x7632)};
    return bytes;
}"""
HELPERS = {
    "take_of_largest": _TAKE.format_map(_PLAIN),
    "take_number_of_largest": _TAKE.format_map(_NUMBERED),
    "follow_of_largest": FOLLOW,
    "exchanged_bytes": EXCHANGED,
}
"""By the word that calls for them."""
