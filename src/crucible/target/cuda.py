"""Pieces of CUDA C++ that kernels are put together from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

CUDA_TYPES = {
    "float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double", "bool": "bool",
    "uint8": "unsigned char", "int32": "int",
}  # fmt: skip
"""What kernels call the element types; pointers of PyTorch's own half types are to be cast to these."""
_FROM = {
    ("float16", "float32"): "__half2float({})",
    ("bfloat16", "float32"): "__bfloat162float({})",
    ("bool", "float32"): "{}",  # conditions read it as it is, and nothing else does
    ("bool", "float64"): "{}",
    ("float32", "float64"): "static_cast<double>({})",
    ("float16", "float64"): "static_cast<double>(__half2float({}))",
    ("bfloat16", "float64"): "static_cast<double>(__bfloat162float({}))",
    ("float64", "float32"): "static_cast<float>({})",
    ("float32", "float16"): "__float2half_rn({})",
    ("float32", "bfloat16"): "__float2bfloat16_rn({})",
    ("float64", "float16"): "__float2half_rn(static_cast<float>({}))",
    ("float64", "bfloat16"): "__float2bfloat16_rn(static_cast<float>({}))",
    ("uint8", "int32"): "{}",
    ("int32", "uint8"): "static_cast<unsigned char>({})",
    ("float32", "tf32"): "rounded({})",
    ("float32", "word"): "__float_as_uint({})",
    ("float16", "half"): "static_cast<unsigned>(raw({}))",
    ("bfloat16", "half"): "static_cast<unsigned>(raw({}))",
    ("word", "float32"): "__uint_as_float({})",
    ("tf32", "word"): "{}",
    ("word", "tf32"): "rounded(__uint_as_float({}))",
    ("int32", "tf32"): "{}",
    ("int32", "halves"): "{}",
    ("int32", "word"): "{}",
    ("halves", "int32"): "static_cast<int>({})",
    ("uint8", "bytes"): "{0}.at[0] | {0}.at[1] << 8",
    ("number", "int32"): "__float_as_int({})",
}
AS_WORD = {
    "float32": "__float_as_uint({})", "tf32": "{}", "word": "{}", "half": "{}", "halves": "{}", "float16": "raw({})",
    "bfloat16": "raw({})",
}  # fmt: skip
"""Bits of a value, as something unsigned."""
INCLUDES = {"float16": "#include <cuda_fp16.h>", "bfloat16": "#include <cuda_bf16.h>"}

PACK = """\
template <typename T, int count>
struct __align__(sizeof(T) * count) Pack {  // neighbours that are loaded or stored by one instruction
    T at[count];
};"""
LOAD = """\
template <int count, typename T>
__device__ __forceinline__ Pack<T, count> load(const T* from) {
    return *reinterpret_cast<const Pack<T, count>*>(from);
}"""
STORE = """\
template <int count, typename T>
__device__ __forceinline__ void store(T* to, const Pack<T, count>& pack) {
    if constexpr (sizeof(T) < 8 && sizeof(T) * count == 16) {
        const uint4 words = reinterpret_cast<const uint4&>(pack);
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                     :: "l"(to), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
    } else if constexpr (sizeof(T) < 8 && sizeof(T) * count == 8) {
        const uint2 words = reinterpret_cast<const uint2&>(pack);
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" :: "l"(to), "r"(words.x), "r"(words.y));
    } else {
        *reinterpret_cast<Pack<T, count>*>(to) = pack;
    }
}"""
# Written plainly, nvcc 13.0 made four instructions of each 16 bytes that came out of a chain (seen in SASS; ncu on an
# H200 showed 8 of 32 bytes of a sector used). The store clobbers no memory: no kernel reads what it stores, and loads
# may pass it. Doubles are left as they are: in halves they spilled. Where the compiler does see packs, as in kernels of
# pools, it is left to it: assembly takes whole addresses, which were 6 registers more in the gradient of an average.
HELPERS = {"Pack": PACK, "load": LOAD, "store": STORE}
"""By the word that calls for them, in the order in which they must stand."""

STEPS = {"sum": "{0} += {1};", "max": "{0} = max_nan({0}, {1});", "min": "{0} = min_nan({0}, {1});"}
"""One more value into a reduction."""
START = {
    "sum": {
        "float32": "0.0f", "float64": "0.0", "bool": "false", "uint8": "0", "tf32": "0u", "word": "0u", "half": "0u",
        "halves": "0u", "int32": "0", "number": "0.0f",
    },
    "max": {"float32": "-INFINITY", "float64": "-INFINITY"},
    "min": {"float32": "INFINITY", "float64": "INFINITY"},
    "none": {"int32": "-1"},
    "all": {"bool": "true"},
}  # fmt: skip
"""What is in a register before there is a value."""


def combining(kind: str) -> dict[str, str]:
    """The device functions that combine the values of several threads, by name."""
    step = STEPS[kind]
    return {
        f"{kind}_over_team": f"""\
template <int team, typename T>
__device__ __forceinline__ T {kind}_over_team(T value) {{  // of `team` neighbouring lanes, the same for each of them
#pragma unroll
    for (int distance = team / 2; distance > 0; distance /= 2) {{
        {step.format("value", "__shfl_xor_sync(0xffffffffu, value, distance)")}
    }}
    return value;
}}""",
        f"{kind}_over_columns": f"""\
template <int lanes, typename T>
__device__ __forceinline__ T {kind}_over_columns(T value) {{  // of every `lanes`-th lane, the same for each of them
#pragma unroll
    for (int distance = lanes; distance < 32; distance *= 2) {{
        {step.format("value", "__shfl_xor_sync(0xffffffffu, value, distance)")}
    }}
    return value;
}}""",
        f"{kind}_over_block": f"""\
template <int threads, typename T>
__device__ __forceinline__ T {kind}_over_block(T value, T (&parts)[threads / 32]) {{  // in a fixed order
    value = {kind}_over_team<32>(value);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return {kind}_over_team<threads / 32>(parts[threadIdx.x % (threads / 32)]);
}}""",
        f"{kind}_over_warps": f"""\
template <int threads, typename T>
__device__ __forceinline__ T {kind}_over_warps(T value) {{  // of a block, in a fixed order; in thread 0
    __shared__ T parts[threads / 32];
    value = {kind}_over_team<32>(value);
    __syncthreads();  // parts may still be read from the last time
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    T total = {START[kind]["float32"]};
    if (threadIdx.x == 0) {{
        for (int warp = 0; warp < threads / 32; ++warp) {step.format("total", "parts[warp]")}
    }}
    return total;
}}""",
        f"{kind}_over_groups": f"""\
template <int groups, int lanes, int vector, typename T>
__device__ __forceinline__ void {kind}_over_groups(T (&values)[vector], T (&parts)[groups][(vector | 1) * lanes]) {{
    const int lane = threadIdx.x % lanes, own = threadIdx.x / lanes;
#pragma unroll
    for (int j = 0; j < vector; ++j) parts[own][j * lanes + lane] = values[j];
    __syncthreads();
    for (int place = threadIdx.x; place < vector * lanes; place += groups * lanes) {{  // each by one thread, in order
        T value = parts[0][place];
        for (int group = 1; group < groups; ++group) {step.format("value", "parts[group][place]")}
        parts[0][place] = value;
    }}
    __syncthreads();
#pragma unroll
    for (int j = 0; j < vector; ++j) values[j] = parts[0][j * lanes + lane];
}}""",
    }


def converted(words: str, given: str, wanted: str) -> str:
    """A value of one element type as another."""
    return words if given == wanted else _FROM[given, wanted].format(words)


def indented(lines: Iterable[str]) -> list[str]:
    """A step to the right; directives stay where they are."""
    return [line if line.startswith("#") or not line else f"    {line}" for line in lines]


def block(head: str, lines: Sequence[str]) -> list[str]:
    """In braces, or as it is where there is no head."""
    return [f"{head} {{", *indented(lines), "}"] if head else list(lines)


def unrolled(variable: str, count: str, lines: Sequence[str]) -> list[str]:
    """A loop whose rounds all stand in the code."""
    return ["#pragma unroll", *block(f"for (int {variable} = 0; {variable} < {count}; ++{variable})", lines)]
