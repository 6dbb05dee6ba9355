"""What each GPU can do by its maker's own account, so that a floor can be told without the card at hand.

Nothing here is measured and nothing here imports torch. Rates are dense: datasheets of Hopper and Blackwell print
matrix rates with 2:4 sparsity, which are halved here, and `sources` says where.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crucible.errors import DeviceError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """One product's limits. A rate of None: the product has no such units (never: unknown)."""

    name: str
    """As nvidia-smi prints it."""
    short_name: str
    """As one would type it: `h200`, `h100-pcie`."""
    compute_capability: tuple[int, int]
    """Major and minor."""
    sms: int
    """Streaming multiprocessors that are enabled."""
    l2_bytes: int
    """Second-level cache."""
    memory_bytes: int
    """The size it is sold under, in binary units; the driver keeps some of it for itself."""
    bandwidth_gb_s: float
    """Peak of the device memory, in 10^9 bytes a second (a copy on an H200 reaches 88 % of it)."""
    fp64_tflops: float
    """10^12 operations a second outside the tensor cores; a fused multiply-add counts as two, here and below."""
    fp32_tflops: float
    """Outside the tensor cores."""
    fp64_tensor_tflops: float | None
    """Matrix products of float64."""
    tf32_tflops: float
    """Matrix products of TF32 operands, dense."""
    bf16_tflops: float
    """Matrix products of bfloat16 operands with fp32 sums, dense."""
    fp16_tflops: float
    """Matrix products of float16 operands with fp32 sums, dense."""
    fp8_tflops: float | None
    """Matrix products of 8-bit floating operands, dense."""
    shared_memory_per_block_bytes: int
    """The most one block can have, after opting in."""
    shared_memory_per_sm_bytes: int
    """What the blocks of one multiprocessor share; each block takes 1 KiB more than it asked for."""
    registers_per_sm: int
    """32-bit registers."""
    max_threads_per_sm: int
    """Threads resident at a time."""
    max_blocks_per_sm: int
    """Blocks resident at a time."""
    memory_bus_bits: int
    """Width of the interface to the device memory."""
    sources: tuple[str, ...]
    """The documents, each with the figures taken from it."""

    @property
    def architecture(self) -> str:
        """As compilers call it: `sm_90`."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def clock_mhz(self) -> int:
        """The clock that the FP32 rate stands for: a fused multiply-add per lane and cycle."""
        lanes = 64 if self.compute_capability == (8, 0) else 128
        return round(self.fp32_tflops * 1e6 / (self.sms * lanes * 2))

    @property
    def memory_clock_mhz(self) -> int:
        """The clock that the bandwidth stands for: two transfers a cycle, as the CUDA runtime counts it."""
        return round(self.bandwidth_gb_s * 1e3 * 8 / self.memory_bus_bits / 2)


DEFAULT = "h200"
"""The GPU that stands for one where none is named."""
WARP = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_REGISTERS_PER_THREAD = 255
SHARED_WITHOUT_OPT_IN_BYTES = 48 * KIB
"""What a block can have without cudaFuncSetAttribute."""
SHARED_RESERVED_BYTES = KIB
"""What the system takes of the shared memory of each block."""
SHARED_UNIT_BYTES = 128
"""Shared memory is allocated in multiples of it."""
REGISTER_UNIT = 256
"""Registers of a warp are allocated in multiples of it."""
PARTITIONS = 4
"""Into which a multiprocessor's registers and warps are divided."""
# The seven above hold for compute capabilities 8.0 to 10.0: CUDA C++ Programming Guide, Technical Specifications per
# Compute Capability; the units as in the toolkit's cuda_occupancy.h.

_OCCUPANCY = (
    "shared memory, registers, threads and blocks: {} Tuning Guide, section Occupancy, "
    "docs.nvidia.com/cuda/{}-tuning-guide"
)
_AMPERE_GUIDE = _OCCUPANCY.format("NVIDIA Ampere GPU Architecture", "ampere")
_ADA_GUIDE = _OCCUPANCY.format("NVIDIA Ada GPU Architecture", "ada")
_HOPPER_GUIDE = _OCCUPANCY.format("NVIDIA Hopper", "hopper")
_BLACKWELL_GUIDE = _OCCUPANCY.format("NVIDIA Blackwell", "blackwell")
_H100_WHITEPAPER = (
    "multiprocessors, L2, memory interface: NVIDIA H100 Tensor Core GPU Architecture (whitepaper), "
    "resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper"
)
_A100_DATASHEET = (
    "memory, bandwidth, rates (both printed, the dense one taken): NVIDIA A100 Tensor Core GPU datasheet, "
    "www.nvidia.com/en-us/data-center/a100"
)
_A100_WHITEPAPER = (
    "multiprocessors, L2, memory interface: NVIDIA A100 Tensor Core GPU Architecture (whitepaper), "
    "images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf"
)

_A100_SXM_80 = Gpu(
    name="NVIDIA A100-SXM4-80GB",
    short_name="a100-sxm-80gb",
    compute_capability=(8, 0),
    sms=108,
    l2_bytes=40 * MIB,
    memory_bytes=80 * GIB,
    bandwidth_gb_s=2039.0,
    fp64_tflops=9.7,
    fp32_tflops=19.5,
    fp64_tensor_tflops=19.5,
    tf32_tflops=156.0,
    bf16_tflops=312.0,
    fp16_tflops=312.0,
    fp8_tflops=None,
    shared_memory_per_block_bytes=163 * KIB,
    shared_memory_per_sm_bytes=164 * KIB,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    memory_bus_bits=5120,
    sources=(_A100_DATASHEET, _A100_WHITEPAPER, _AMPERE_GUIDE),
)

_H100_SXM = Gpu(
    name="NVIDIA H100 80GB HBM3",
    short_name="h100-sxm",
    compute_capability=(9, 0),
    sms=132,
    l2_bytes=50 * MIB,
    memory_bytes=80 * GIB,
    bandwidth_gb_s=3350.0,
    fp64_tflops=34.0,
    fp32_tflops=67.0,
    fp64_tensor_tflops=67.0,
    tf32_tflops=989 / 2,
    bf16_tflops=1979 / 2,
    fp16_tflops=1979 / 2,
    fp8_tflops=3958 / 2,
    shared_memory_per_block_bytes=227 * KIB,
    shared_memory_per_sm_bytes=228 * KIB,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    memory_bus_bits=5120,
    sources=(
        "memory, bandwidth, rates (TF32, BF16, FP16 and FP8 printed with sparsity, halved): NVIDIA H100 Tensor Core "
        "GPU datasheet, column H100 SXM, www.nvidia.com/en-us/data-center/h100",
        _H100_WHITEPAPER,
        _HOPPER_GUIDE,
    ),
)

GPUS: tuple[Gpu, ...] = (
    replace(
        _H100_SXM,
        name="NVIDIA H200",
        short_name="h200",
        l2_bytes=60 * MIB,
        memory_bytes=141 * GIB,
        bandwidth_gb_s=4800.0,
        memory_bus_bits=6144,
        sources=(
            "memory, bandwidth, rates (TF32, BF16, FP16 and FP8 printed with sparsity, halved): NVIDIA H200 Tensor "
            "Core GPU datasheet, column H200 SXM, www.nvidia.com/en-us/data-center/h200",
            "multiprocessors, L2 (62914560 bytes), memory interface: as the driver (580, CUDA 13.0) reports them for "
            "an NVIDIA H200",
            _HOPPER_GUIDE,
        ),
    ),
    _H100_SXM,
    replace(
        _H100_SXM,
        name="NVIDIA H100 PCIe",
        short_name="h100-pcie",
        sms=114,
        bandwidth_gb_s=2000.0,
        fp64_tflops=26.0,
        fp32_tflops=51.0,
        fp64_tensor_tflops=51.0,
        tf32_tflops=756 / 2,
        bf16_tflops=1513 / 2,
        fp16_tflops=1513 / 2,
        fp8_tflops=3026 / 2,
        sources=(
            "memory, bandwidth, rates (TF32, BF16, FP16 and FP8 printed with sparsity, halved): NVIDIA H100 Tensor "
            "Core GPU datasheet, column H100 PCIe, www.nvidia.com/en-us/data-center/h100",
            _H100_WHITEPAPER,
            _HOPPER_GUIDE,
        ),
    ),
    _A100_SXM_80,
    replace(_A100_SXM_80, name="NVIDIA A100 80GB PCIe", short_name="a100-pcie-80gb", bandwidth_gb_s=1935.0),
    replace(
        _A100_SXM_80,
        name="NVIDIA A100-SXM4-40GB",
        short_name="a100-sxm-40gb",
        memory_bytes=40 * GIB,
        bandwidth_gb_s=1555.0,
    ),
    replace(
        _A100_SXM_80,
        name="NVIDIA A100-PCIE-40GB",
        short_name="a100-pcie-40gb",
        memory_bytes=40 * GIB,
        bandwidth_gb_s=1555.0,
    ),
    Gpu(
        name="NVIDIA L40S",
        short_name="l40s",
        compute_capability=(8, 9),
        sms=142,
        l2_bytes=96 * MIB,
        memory_bytes=48 * GIB,
        bandwidth_gb_s=864.0,
        fp64_tflops=91.6 / 64,
        fp32_tflops=91.6,
        fp64_tensor_tflops=None,
        tf32_tflops=183.0,
        bf16_tflops=362.05,
        fp16_tflops=362.05,
        fp8_tflops=733.0,
        shared_memory_per_block_bytes=99 * KIB,
        shared_memory_per_sm_bytes=100 * KIB,
        registers_per_sm=65536,
        max_threads_per_sm=1536,
        max_blocks_per_sm=24,
        memory_bus_bits=384,
        sources=(
            "memory, bandwidth, rates (both printed, the dense one taken), multiprocessors (one RT core each): "
            "NVIDIA L40S datasheet, www.nvidia.com/en-us/data-center/l40s",
            "FP64 at 1/64 of FP32: NVIDIA Ada GPU Architecture (whitepaper), "
            "images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf",
            "memory interface: NVIDIA L40S datasheet, as above",
            "L2 of 98304 KB in AD102: NVIDIA Ada GPU Architecture Tuning Guide, section Increased L2 capacity",
            _ADA_GUIDE,
        ),
    ),
    Gpu(
        name="NVIDIA B200",
        short_name="b200",
        compute_capability=(10, 0),
        sms=148,
        l2_bytes=126 * MIB,
        memory_bytes=180 * GIB,
        bandwidth_gb_s=8000.0,
        fp64_tflops=296 / 8,
        fp32_tflops=600 / 8,
        fp64_tensor_tflops=296 / 8,
        tf32_tflops=18000 / 8 / 2,
        bf16_tflops=36000 / 8 / 2,
        fp16_tflops=36000 / 8 / 2,
        fp8_tflops=72000 / 8 / 2,
        shared_memory_per_block_bytes=227 * KIB,
        shared_memory_per_sm_bytes=228 * KIB,
        registers_per_sm=65536,
        max_threads_per_sm=2048,
        max_blocks_per_sm=32,
        memory_bus_bits=8192,
        sources=(
            "rates (of eight GPUs, so divided by 8; TF32, BF16, FP16 and FP8 printed with sparsity, halved): "
            "NVIDIA HGX B200 specifications, www.nvidia.com/en-us/data-center/hgx",
            "bandwidth: NVIDIA Blackwell Architecture Technical Brief, "
            "resources.nvidia.com/en-us-blackwell-architecture",
            "multiprocessors (74 on each of two dies): Nvidia's B200, "
            "chipsandcheese.com/p/nvidias-b200-keeping-the-cuda-juggernaut",
            "memory, L2 (given for the GB200's GPU, the same chip): NVIDIA Blackwell Tuning Guide, Memory System",
            "memory interface: eight stacks of HBM3E, each of 1024 bits",
            _BLACKWELL_GUIDE,
        ),
    ),
)
"""Newest first."""

_OTHER_NAMES = {"h100": "h100-sxm", "a100": "a100-sxm-80gb", "a100-sxm": "a100-sxm-80gb", "a100-pcie": "a100-pcie-80gb"}


def find_gpu(name: str) -> Gpu | None:
    """The product of that name, as nvidia-smi prints it or short (`h200`, `h100`, `a100-pcie`), in any case.

    None for a product that is not in the table; a name is never matched in part, since "NVIDIA H100 NVL" is
    neither of the other H100s.
    """
    wanted = name.strip().lower()
    wanted = _OTHER_NAMES.get(wanted, wanted)
    return next((gpu for gpu in GPUS if wanted in (gpu.short_name, gpu.name.lower())), None)


def known_gpu(name: str) -> Gpu:
    """`find_gpu`, for a name that must be in the table. Raises DeviceError when it is not."""
    gpu = find_gpu(name)
    if gpu is None:
        names = ", ".join(sorted({*(gpu.short_name for gpu in GPUS), *_OTHER_NAMES}))
        raise DeviceError(f"no GPU {name!r} in the table: choose one of {names}")
    return gpu


def closest_gpu(name: str) -> Gpu:
    """`find_gpu`; for a product that is not in the table the one of least shared memory, whose kernels run on all."""
    return find_gpu(name) or min(GPUS, key=lambda gpu: gpu.shared_memory_per_block_bytes)


H200 = known_gpu(DEFAULT)
