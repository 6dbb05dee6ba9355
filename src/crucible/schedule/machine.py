"""What a GPU takes for what kernels do: every constant of the cost model, one record a GPU.

`cost.py` alone reads a record; planners and kinds count what there is to do and ask it. Defaults are the H200's, which
are in force; `machine_of` says which record a GPU has. `benchmarks/costs.py` measures a record on the GPU at hand and
prints it beside the one in force.

Each field says its unit first and where it is from last: a record of `benchmarks/results`, a heading of
`benchmarks/notes.md`, or that it is not measured, and then it is a guess that was kept. Where several kinds take one
number they share a field. Clocks are a multiprocessor's where nothing else is said. Instructions are a warp's or a
thread's, by the machine code of nvcc 13.0 for sm_90 where they are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crucible.gpus import Gpu, known_gpu


@dataclass(frozen=True)
class Sm:
    """A multiprocessor and its share of the memory."""

    ghz: float = 1.8
    """GHz: its clock under convolution kernels, as Nsight Compute saw it. From: notes.md, "Estimates of `mma.sync`"."""
    issued: float = 128
    """instructions a clock: of threads, by four schedulers of 32 lanes. From: CUDA C++ Programming Guide."""
    shared_bytes: float = 128
    """bytes a clock: of shared memory and L1: 32 banks. From: CUDA C++ Programming Guide."""
    column_clocks: float = 0.5
    """clocks: of `wgmma.m64nNk8` for each of N columns. From: instructions_h200.json."""
    copied_bytes: float = 18.3
    """bytes a clock: of device memory where all copy (4.25 TB/s). From: notes.md, "Estimates of `mma.sync`"."""
    walked_bytes: float = 14.1
    """bytes a clock: in whole sectors, beside products of warpgroups: P90's forward moved 14.6, 13.9 and 14.0 with N of
    256, 192 (by rows) and 128. From: notes.md, "Convolution kernels: versions"."""
    streamed_bytes: float = 16
    """bytes a clock: the same of kernels whose weights come with each stage. From: notes.md, "Streamed weights"."""
    chained_bytes: float = 22.0
    """bytes a clock: read and written by chains behind phases; samples of P38's passes gave 20 to 24. From: notes.md,
    "P38's softmax"."""
    all_bytes: float = 2400
    """bytes a clock: of all multiprocessors together, for parts of products. From: not measured."""
    load_clocks: float = 800
    """clocks: until what a warp of its own loads has come. From: notes.md, "P38's softmax"."""
    piece_bytes: float = 64
    """bytes: that memory gives at once to loads that begin anywhere. From: not measured."""
    l2_times: float = 2
    """times: as fast as memory comes what all blocks read. From: not measured."""
    partly: float = 7.5
    """sectors: whose time one takes that a block writes partly; it is read, put together and written. 6.7 and 7.3
    clocks each. From: convolutions_h200.json."""
    sharpness: float = 3
    """exponent: of the norm that puts times together which overlap. From: convolutions_h200.json."""
    beyond: float = 1.36
    """times: its bare products that P90's forward took. From: notes.md, "Convolution kernels: versions"."""


@dataclass(frozen=True)
class Chains:
    """What an element of a chain takes."""

    element_instructions: float = 16
    """instructions: beside functions, of a chain in registers. From: notes.md, "P38's softmax"."""
    fetching_instructions: float = 27
    """instructions: the same where sums are taken or other tensors come. From: notes.md, "P38's softmax"."""
    row_instructions: float = 140
    """instructions: over rows of the tile, as if all were issued: one warp of a scheduler waits for its own (115 to 163
    with 2 x 32 to 5 x 32 positions). From: divisions_h200.json."""
    row_load_instructions: float = 60
    """instructions: the same for each tensor that it loads (200 with one). From: divisions_h200.json."""
    row_sum_instructions: float = 21
    """instructions: the same for each sum of its channels, beside which tensors come (162 us with two sums, 137
    without). From: divisions_again_h200.json."""
    slot_instructions: float = 4
    """instructions: that one of a function which branches takes the place of, of one element after the other (CELU: 7).
    From: divisions_h200.json."""
    large_instructions: int = 15
    """instructions: from which on a function's are more than caches of instructions hold. From: notes.md, "Chains over
    rows"."""
    large_times: int = 3
    """times: as long as others each of these takes (erf, log1p: 131 and 230 us, for which 67 and 111 were estimated).
    From: notes.md, "Chains over rows"."""


@dataclass(frozen=True)
class Warps:
    """Kernels by `mma.sync`, of one block a multiprocessor or two."""

    product_clocks: float = 1.6
    """clocks: of the four tensor cores for each 16x8x8 product. From: not measured."""
    round_clocks: float = 400
    """clocks: until a round of a thread's loads has come, addresses included. From: convolutions_h200.json."""
    slice_clocks: float = 2000
    """clocks: of two barriers and the first and last accesses between, while nothing is multiplied. From:
    convolutions_h200.json."""
    depth_clocks: float = 100
    """clocks: of a step along a weight gradient's positions, beyond its products. From: not measured."""
    strided_times: float = 1.2
    """times: what the rest says of a weight's gradient whose source is read with strides: 1.09 to 1.29 in eight races,
    0.77 to 1.16 without. From: divisions_tf32_h100.json."""
    exact_times: float = 1.6
    """times: what the rest says of tiles that keep float32, whose words are split at each product: 1.4 to 1.76 by three
    products in nine tasks of level 2, 1.6 and 1.68 by two in 43 and 10. From: notes.md, "KernelBench level 2 at default
    flags"."""
    exact_phased_times: float = 2.4
    """times: the same of several phases: 2.1 and 2.4 by three products in 93 and 91, 2.6 by two in 91. From: notes.md,
    "KernelBench level 2 at default flags"."""
    half_times: float = 1.25
    """times: what the rest says of tiles of half types, against streams: two convolutions with a GELU behind took 0.77
    and 0.86 of their estimates by tiles, 0.57 and 0.67 by streams. From: divisions_bf16_h100.json."""
    beside: float = 1.4
    """times: what a block waits for one by one, where two share a multiprocessor. From: convolutions_h200.json."""
    alone: float = 0.3
    """times: of the wait for memory, of a multiprocessor that is busy alone. From: tune_stride_2_h200.json."""
    contended: float = 1.05
    """times: the clocks of wavefronts, for conflicts. From: convolutions_h200.json."""
    slots_a_clock: float = 3
    """instructions a clock: of chains, of warps of which two or four share a scheduler. From: divisions_h200.json."""
    loaded_clocks: float = 8
    """clocks: of a warp's 32 outputs for a tensor that their chain reads. From: divisions_h200.json."""
    staged_instructions: float = 14
    """instructions: for 16 bytes of a halo, loaded and stored. From: notes.md, "Convolution kernels: versions"."""
    ahead_instructions: float = 20
    """instructions: the same by `cp.async`, rounded in place. From: notes.md, "Convolution kernels: versions"."""
    window_instructions: float = 25
    """instructions: for a window of 16 bytes of channels that is spread over its elements. From: not measured."""
    spread_instructions: float = 14
    """instructions: for each of its elements. From: not measured."""
    spread_times: float = 4
    """times: as long as issue alone, since lanes part at each element. From: not measured."""
    reduced_instructions: float = 18
    """instructions: for a product that is only reduced, in registers. From: convolutions_h200.json."""
    placed_instructions: float = 12
    """instructions: for a product on its way through the tile. From: convolutions_h200.json."""
    pooled_instructions: float = 14
    """instructions: for a product of a window in registers. From: convolutions_h200.json."""
    window_clocks: float = 6
    """clocks: of a warp's 32 pooled values. From: convolutions_h200.json."""
    folded_instructions: float = 45
    """instructions: for an output whose taps are channels. From: convolutions_h200.json."""
    folded_wavefronts: float = 1.3
    """wavefronts: of a warp's 32 such outputs. From: convolutions_h200.json."""
    fold_wavefronts: float = 1.2
    """wavefronts: the same for each tap. From: convolutions_h200.json."""
    upstream_instructions: float = 8
    """instructions: for 4 bytes of the gradient that a weight's gradient stages. From: convolutions_h200.json."""


@dataclass(frozen=True)
class Walks:
    """Kernels by warpgroups that walk along planes."""

    hand_over_clocks: float = 250
    """clocks: from the last product of one warpgroup to the first of the next. From: not measured."""
    chain_clocks: float = 1000
    """clocks: of a plane's chain beside its instructions. From: not measured."""
    first_clocks: float = 1200
    """clocks: until the first planes of an item have come, where there are slots for those in use alone. From: not
    measured."""
    run_clocks: float = 2
    """clocks: of a bulk copy of results. From: not measured."""
    stage_clocks: float = 2500
    """clocks: from one round of a staging warpgroup's loads to the next (one tap, 94 positions of 64 and 32 channels a
    plane: 4600 and 3800 in all). From: divisions_h200.json."""
    unit_clocks: float = 125
    """clocks: for each 16 bytes that a staging thread has in a round. From: divisions_h200.json."""
    stepped_times: float = 1.05
    """times: what the rest says in two dims, of more channels than an instruction takes where float32 is rounded, as
    streams are to be chosen where both are estimated alike: of 16 channels 1.6 times what was estimated (1.94 ms, and
    streams 1.25), of 32 as estimated. From: divisions_tf32_h100.json."""


@dataclass(frozen=True)
class Phases:
    """The same of several phases, sums in registers."""

    issue_clocks: float = 2.0
    """clocks: of a chain's instruction, a warp's; samples of P38's passes gave 1.8 to 2.0. From: notes.md, "P38's
    softmax"."""
    turn_clocks: float = 400.0
    """clocks: around a phase's products and chain; 850 while slots were found by divisions. From: notes.md, "P38's
    softmax"."""
    store_clocks: float = 800
    """clocks: of the staging warpgroup between its stores and its next loads. From: notes.md, "P38's softmax"."""
    value_clocks: float = 40
    """clocks: for each value that it rounds, beside two warpgroups. From: notes.md, "P38's softmax"."""
    values_beside: float = 2
    """warpgroups: that multiplied where the two above were measured; all issue in turn. From: notes.md, "P38's
    softmax"."""
    odd_times: float = 2.6
    """times: what the rest says, where a row of an odd number of outputs is written: 2.2 to 3.9 in six races, 1.0 and
    1.1 where it is even. From: divisions_tf32_h100.json."""


@dataclass(frozen=True)
class Pools:
    """The same whose phases are a pool's windows."""

    start_clocks: float = 8000
    """clocks: until weights are in order and the first products begin (14,700 of P74's forward before loads came first;
    that it is less is assumed). From: not measured."""
    staged_instructions: float = 7
    """instructions: of a staged element. From: notes.md, "P74's pool by `wgmma`"."""
    window_instructions: float = 20
    """instructions: of a window when all its elements are there. From: notes.md, "P74's pool by `wgmma`"."""
    stored_instructions: float = 5
    """instructions: of each tensor that it is stored to. From: notes.md, "P74's pool by `wgmma`"."""
    extreme_clocks: int = 2
    """clocks: of a warp's issue for a product that one extreme is followed of. From: notes.md, "P74's pool by
    `wgmma`"."""
    followed_clocks: int = 4
    """clocks: the same of a comparison of products with its selections. From: notes.md, "P74's pool by `wgmma`"."""
    compared_clocks: int = 6
    """clocks: the same of a comparison of values. From: notes.md, "P74's pool by `wgmma`"."""


@dataclass(frozen=True)
class Scatter:
    """Kernels of few output channels, added up in shared memory."""

    copy_clocks: float = 16
    """clocks: of a bulk copy of a row. From: not measured."""
    latency_clocks: float = 500
    """clocks: of a tile from the first load of its registers to the first product, and from the last product to the
    first sum in registers. From: not measured."""
    barrier_clocks: float = 60
    """clocks: of sums that one warpgroup adds up before another may. From: not measured."""
    row_wavefronts: float = 100
    """wavefronts: of a finished row and the barriers around it. From: notes.md, "Few output channels"."""
    item_clocks: float = 4000
    """clocks: of an item's begin and end. From: notes.md, "Few output channels"."""


@dataclass(frozen=True)
class Streams:
    """Kernels whose weights come with each stage."""

    first_clocks: float = 2000
    """clocks: until an item's first stage has come, and its last outputs have left. From: not measured."""
    stage_clocks: float = 150
    """clocks: from one stage's products to the next's. From: not measured."""
    staged_instructions: float = 11
    """instructions: of a staged element, with its place, by the machine code. From: notes.md, "Streamed weights"."""
    loaded_clocks: float = 30
    """clocks: for 128 outputs and each tensor that their chain reads in whole sectors. From: divisions_h200.json."""
    apart_clocks: float = 300
    """clocks: the same where rows are not whole sectors. From: divisions_h200.json."""
    round_clocks: float = 200
    """clocks: to load and to store a position, of a thread. From: notes.md, "Streamed weights"."""
    memory_clocks: float = 1200
    """clocks: until a thread's positions have come, by samples of P38's input gradient. From: notes.md, "Streamed
    weights"."""
    l2_clocks: float = 500
    """clocks: the same from the L2 cache. From: not measured."""
    chain_share: float = 0.42
    """times: a chain's functions, where nothing is added up, that hold tensor cores up, by two chains with a GELU; the
    rest goes on beside the other warpgroup's products. From: divisions_tf32_h100.json."""
    fetched_times: float = 1.08
    """times: what the rest says, where the next stage's rows are asked for ahead though planes are staged more than
    once: 0.99 to 1.27 times in nine races, of which seven were slower for it. From: divisions_tf32_h100.json."""
    window_clocks: float = 145
    """clocks: to load and to store a window of a unit of channels, by its instructions. From: not measured."""
    window_element_clocks: float = 50
    """clocks: the same for each of its elements in a plane. From: not measured."""
    weight_times: float = 3.5
    """times: as fast as others from the L2 cache come weights, which all blocks read in one order: of 63 kernels that
    were timed in two divisions and more 14 take a slower one by 3 or 3.5, 15 by 4, 16 by 2.5, 19 by 1. From:
    divisions_again_h200.json."""
    exact_weight_times: float = 4
    """times: the same where float32 is kept: with 1 estimates of 35 divisions of seven convolutions were 1.2 times what
    they took, 0.15 apart (deviation of logarithms), with this 1.1 and 0.12. From: exact_streams_h200.json."""
    crossing_instructions: float = 6
    """instructions: of an output's share in a reduction over channels. From: not measured."""


@dataclass(frozen=True)
class Wgrad:
    """Gradients of weights by warpgroups."""

    least_clocks: float = 16
    """clocks: of an instruction, however few its columns. From: not measured."""
    step_clocks: float = 500
    """clocks: of a step beside its products: words are rounded, the last instructions end. From: not measured."""
    load_clocks: float = 900
    """clocks: until what is staged has come from memory. From: not measured."""
    plane_clocks: float = 430
    """clocks: of a staged plane beside its rounds. From: notes.md, "Convolution kernels: versions"."""
    round_clocks: float = 200
    """clocks: of a round beside its pieces. From: notes.md, "Convolution kernels: versions"."""
    read_clocks: float = 45
    """clocks: of a load of a piece. From: notes.md, "Convolution kernels: versions"."""
    unit_clocks: float = 22
    """clocks: of 16 bytes stored, words rounded. From: notes.md, "Convolution kernels: versions"."""
    packed_clocks: float = 60
    """clocks: the same of half types. From: not measured."""
    bring_clocks: float = 490
    """clocks: of a plane that bulk copies bring. From: notes.md, "Convolution kernels: versions"."""
    copy_clocks: float = 65
    """clocks: of each of them, one lane after the other. From: notes.md, "Convolution kernels: versions"."""
    by_threads: float = 1.05
    """times: as long as by bulk copies planes take that threads load (P90: 0.760 ms for 0.726). From: notes.md,
    "Convolution kernels: versions"."""
    shared_share: float = 0.5
    """times: of what several parts read, that comes from memory. From: not measured."""
    finish_clocks: float = 8000
    """clocks: of the kernel that adds parts up. From: not measured."""


@dataclass(frozen=True)
class Products:
    """Float32 products of matrices, by three of tensor cores and by cuBLAS."""

    step_clocks: float = 1900
    """clocks: of a tile of 128 x 128 for 32 of the depth (1024 x 8192 x 8192: four rounds of 256, 1.20 ms at 1.6 GHz;
    tensor cores are busy for 1536). From: products_h200.json."""
    turned_clocks: float = 2150
    """clocks: the same where the right operand is turned as it is staged (1.35 ms). From: products_h200.json."""
    mixed_clocks: float = 1660
    """clocks: the same where products with a lower word are of bfloat16 (0.872 of the time in one call, where tensor
    cores are busy for two thirds of it). From: products_h100.json."""
    turned_mixed_clocks: float = 1710
    """clocks: the same of that (0.795 of the time). From: products_h100.json."""
    round_clocks: float = 3000
    """clocks: until the first step's words are there, and from the last sums to memory. From: not measured."""
    library_flops: float = 28_000
    """FLOPs a clock: of cuBLAS in float32, all multiprocessors (49 TFLOP/s). From: products_h200.json."""


@dataclass(frozen=True)
class Library:
    """PyTorch's convolutions in TF32 of 64 channels to 128, as a plan calls them: in two dims channels-last. Measured
    were those with the bias, whose pass (each element read and written, by memory) is taken off."""

    plane_flops: float = 171_000
    """FLOPs a clock: in two dims (300 and 330 TFLOP/s, all multiprocessors). From: divisions_tf32_h100.json."""
    space_flops: float = 61_000
    """FLOPs a clock: in three dims (100 and 114 TFLOP/s). From: divisions_tf32_h100.json."""
    phased_flops: float = 34_000
    """FLOPs a clock: of transposed ones with strides there (59 TFLOP/s). From: divisions_tf32_h100.json."""
    exact_flops: float = 18_000
    """FLOPs a clock: of those that keep float32, in two dims (32 TFLOP/s, 64 channels to 128 of 3x3), in three dims by
    likeness. From: notes.md, "KernelBench level 2, all 100 tasks in two columns"."""
    exact_gradient_flops: float = 27_000
    """FLOPs a clock: of their gradients (48 TFLOP/s: tasks 1, 4 and 32 with gradients less forward and the chain's
    pass: 24.3, 47.5 and 44.5 ms less 9.4, 20.0 and 18.3). From: notes.md, "KernelBench level 2, all 100 tasks in two
    columns"."""


@dataclass(frozen=True)
class Choices:
    """Where a plan's choice stands for costs that nothing above tells: by sizes up to which one way was the faster."""

    most_channels: int = 64
    """channels: up to which our convolutions beat PyTorch's. From: sweep_h200.json."""
    least_of_group: int = 8
    """channels: of a group, of several, from which on they do. From: sweep_not_taken_h200.json."""
    most_features: int = 16
    """features: of a linear layer, up to which ours do. From: sweep_h200.json."""
    most_features_of_heads: int = 64
    """features: of a head of attention in float32, up to which PyTorch's fused kernels beat products and softmax. From:
    notes.md, "Attention that is written out"."""
    most_features_of_half_heads: int = 256
    """features: the same of half types. From: notes.md, "Attention that is written out"."""
    most_exact_taps: int = 64
    """taps: of a depthwise convolution that keeps float32, up to which ours do. From: depthwise_exact_h200.json."""
    most_wide: int = 128
    """channels: of a convolution in TF32, up to which ours are taken where an estimate of both says so. From:
    divisions_tf32_h100.json."""
    wide_times: float = 1.15
    """times: PyTorch's estimate, up to which ours are taken: they take less than theirs by 1.2 to 1.4 times, with a
    tanh by 1.17, with two Mish by 1.05. From: notes.md, "Level 2 whole on H200s"."""
    exact_wide_times: float = 0.67
    """times: the same where float32 is kept: estimates of the weight's gradient are half to two thirds of what it
    takes. From: notes.md, "KernelBench level 2 at default flags"."""
    most_wide_taps: int = 32
    """taps: of such a convolution: with 125 its weight's gradient takes as long as PyTorch's. From:
    divisions_tf32_h100.json."""
    beside_streams_times: float = 1.05
    """times: what tiles by warps are estimated, where float32 is rounded, from which on streams are taken instead:
    estimates of 81 kernels by warps were 0.77 times what they took, those of 194 streams 0.87. Against walks and phases
    it chose worse. From: divisions_again_h200.json."""
    apart_times: float = 1.05
    """times: the estimate of a kernel that writes result and product, up to which the product is written alone: of both
    it says 0.88, of the product 1.35 times what it takes. From: notes.md, "Level 2 whole on H200s"."""
    kept_share: float = 0.6
    """times: what computing a product again takes, up to which it is kept, all that is moved for it at the speed at
    which all copy: six modules of 0.65 to 0.7 and one of 1.03 took 1.10 to 1.22 times as long with gradients as an
    older version's that computed products again, and one of 0.59 0.91 times. From: before_and_after_h100.json."""
    most_exact_transposed: int = 128
    """channels: of a transposed convolution that keeps float32, with strides or in three dims, up to which ours do; of
    both as measured. From: notes.md, "KernelBench level 2 at default flags"."""
    exact_pooled_times: float = 0.65
    """times: the estimate of a kernel that pools and keeps float32, up to which a convolution and a pool behind it are
    taken: of tasks 10 and 43 of level 2 they say 0.62 and 0.58, and gradients are a pass more. From: notes.md,
    "KernelBench level 2 at default flags"."""
    most_taps_between: int = 25
    """taps: of a depthwise convolution in two dims between kernels of ours, up to which cuDNN's channels-last ones are
    faster; its weight's gradient of 49 takes 1.5 ms where ours takes 0.12. From: notes.md,
    "Networks (H200, measured"."""
    most_strided_bytes: int = 227 * 1024
    """bytes: of the weight of a transposed convolution with strides, in two dims, up to which ours do (64 channels of
    4x4: 5.36 ms where torch.compile's took 2.69). From: kernelbench_level2_h200.json."""
    most_walked: int = 32
    """channels: in one or two dims, up to which walks along planes are chosen; of 64 they take 1.6 to 5 times as
    long as streams. From: divisions_tf32_h100.json."""
    most_in_front: int = 8
    """instructions: of a chain in front, which runs for each element that is staged. From: fronts_h200.json."""
    most_repeated: int = 2
    """times: a row may be reduced anew rather than written and read. From: not measured."""
    most_read: int = 1
    """tensors: of a value's size that each of its readers may read in its stead; with two, writing it costs one move in
    ten more forward and saves one in four with gradients (blocks of attention, counted). From: not measured."""
    launch_bytes: int = 1 << 24
    """bytes: of memory traffic that a further small kernel takes the time of, 4 us. From: not measured."""
    most_small_products: int = 1 << 26
    """products: up to which a small matrix product is written as products and their sum. From: not measured."""
    most_pooled_share: float = 0.8
    """times: the multiply-adds of a convolution, up to which one without the pool behind it is better. From: not
    measured."""
    least_smaller: int = 8
    """times: fewer elements a term must have that is averaged for itself. From: not measured."""


@dataclass(frozen=True)
class Machine:
    """The costs of one GPU."""

    gpu: str
    """name: of the product, as in `gpus`. From: gpus.py."""
    stands_in: bool = False
    """flag: whether these are another GPU's constants, for want of its own. From: gpus.py."""
    sm: Sm = Sm()
    chains: Chains = Chains()
    warps: Warps = Warps()
    walks: Walks = Walks()
    phases: Phases = Phases()
    pools: Pools = Pools()
    scatter: Scatter = Scatter()
    streams: Streams = Streams()
    wgrad: Wgrad = Wgrad()
    products: Products = Products()
    library: Library = Library()
    choices: Choices = Choices()


H200 = Machine("h200")
"""In force for every GPU that has no record, and for the emulator and CPUs, which answer as an H200."""
H100 = replace(H200, gpu="h100-sxm", stands_in=True)
"""Nothing was measured on it for these fields: `python benchmarks/costs.py` there gives its own."""
MACHINES = {machine.gpu: machine for machine in (H200, H100)}
assert all(known_gpu(name) for name in MACHINES)


def machine_of(gpu: Gpu) -> Machine:
    """The record of a GPU; the H200's where it has none of its own."""
    return MACHINES.get(gpu.short_name, H200)
