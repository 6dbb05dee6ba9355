"""Whether it pays: choices of a plan by a GPU's record. What takes clocks is asked of `cost`; here stand those that
nothing but a size up to which one way was the faster tells.
"""

from __future__ import annotations

from crucible.schedule.machine import Machine


def convolution_pays(m: Machine, channels: int, group: int | None) -> bool:
    """Whether kernels of ours beat PyTorch's convolution with what follows it, by what was measured on the H200
    (`benchmarks/results/sweep_h200.json`, `written_tasks_h200.json`): with at most 64 channels, of a group where there
    are several (`group`: the fewest of one), if those have 8 at least, small ones taken together
    (`correlation.together`). Depthwise convolutions are so 1.1 to 2.4 times as fast as eager and with gradients 1.2 to
    3.0; each group by itself they were 0.3 to 0.7. One tap in two dims is a matrix product, in which PyTorch is as
    fast, but not with what follows: of seven such shapes in the sweep all are 2.5 to 7.4 times as fast as torch.compile
    and with gradients 1.6 to 2.5 times as eager; forward of three with strides eager is faster (0.67 to 0.92). In
    bfloat16 seven depthwise ones and small groups are 1.5 to 3.8 times as fast as eager and with gradients 1.2 to 3.3.
    Not measured, and taken by likeness: half types in one dim, transposed convolutions in one dim and in groups."""
    return (group is None or group >= m.choices.least_of_group) and channels <= m.choices.most_channels


def depthwise_pays_exactly(m: Machine, taps: int) -> bool:
    """Whether they do where float32 is kept, by three products for one: not a depthwise convolution of many taps, of
    which PyTorch's own kernel makes one product where tensor cores make 48. With 125 taps ours take 1.64 times as long
    forward and 1.1 with gradients; with 25 to 49 they were 0.79 to 0.92 and 0.94 to 1.49 times as fast, with 27 0.90
    and 1.22, with 5 and 9 1.08 to 1.75 and 1.13 to 1.37; in groups of two to eight channels 2.0 to 8.1 and 1.3 to 9.9
    times (H200, beside PyTorch's convolution with the chain behind it: `depthwise_exact_h200.json`)."""
    return taps <= m.choices.most_exact_taps


def is_wide(m: Machine, channels: int, taps: int) -> bool:
    """Whether a convolution of float32 has more channels than those up to which ours are always the faster, no more
    than were measured, and no more taps: of 64 channels to 128 with 125 taps ours took 4.3 ms for PyTorch's 4.7, the
    weight's gradient as long as PyTorch's, its sums so long that TF32's truncation was seen."""
    return 1 < taps <= m.choices.most_wide_taps and m.choices.most_channels < channels <= m.choices.most_wide


def wide_pays(m: Machine, ours: float, library: float, *, exact: bool = False) -> bool:
    """Whether ours are worth their estimate beside PyTorch's. With the chain behind it ours takes 0.97 ms where a task
    takes 2.02 (64 channels to 128, 3x3, 128 x 128 x 128), in three dims 1.36 for cuDNN's 2.25 alone; gradients of input
    and weight 0.4 to 0.8 of its time (H100, `divisions_tf32_h100.json`). Where float32 is kept task 1
    takes 9.4 ms with PyTorch's and 2.70 with ours, 24.3 and 12.6 with gradients (H100, `kernelbench_level2_h100.json`).
    """
    return ours <= (m.choices.exact_wide_times if exact else m.choices.wide_times) * library


def pooling_inside_pays(m: Machine, channels: int) -> bool:
    """Whether a pool goes into the kernel of a convolution that may round: such kernels are of warps, and streams take
    half their time."""
    return channels <= m.choices.most_channels


def pooling_apart_pays(m: Machine, apart: float, inside: float) -> bool:
    """Whether a pool does not, where float32 is kept: kernels that pool are of warps there too."""
    return apart <= m.choices.exact_pooled_times * inside


def keeping_pays(m: Machine, kept: float, again: float) -> bool:
    """Whether backward reads the product that forward wrote, rather than computing it again: what both take more."""
    return kept <= m.choices.kept_share * again


def product_alone_pays(m: Machine, apart: float, together: float) -> bool:
    """Whether forward, where it keeps the product, writes it alone and has a program read it. Task 1 of level 2 takes
    1.95 ms to write both, and 0.94 and what a program takes for the product alone; 31 and 35 the same, 27 1.88 for
    1.05, 19 5.07 for 3.40, with their chains (H200)."""
    return apart <= m.choices.apart_times * together


def exact_transposed_pays(m: Machine, channels: int) -> bool:
    """Whether they do where float32 is kept of a transposed convolution with strides, or in three dims, in one group:
    PyTorch's makes 8 to 15 TFLOP/s of 64 channels to 128 (level 2 of KernelBench, 93, 91, 36, 61, 77 and 100: 4.5 to
    48 ms, H100), and with ours these tasks take 0.21 to 0.49 of their time, 0.29 to 0.50 with gradients; one dim with
    strides is taken by likeness. Without strides in two dims estimates decide: 64 channels to 128 of 5x5 take PyTorch
    3.4 ms, and ours 4.8 by an estimate of 32 channels a slot, 1.4 of nine taps at a time."""
    return channels <= m.choices.most_exact_transposed


def channels_last_depthwise_pays(m: Machine, taps: int) -> bool:
    """Whether PyTorch's depthwise convolution over channels-last tensors beats ours where kernels of ours stand before
    and behind it, which read and write any order: the seven of MobileNetV2 take 0.35 ms forward where ours took 1.0,
    and 0.79 for the inputs' gradients where four of ours took 2.4 (H200, batch 64, TF32; floats alone were measured).
    """
    return taps <= m.choices.most_taps_between


def linear_pays(m: Machine, features: int) -> bool:
    """The same of a linear layer as a convolution: 1.5 and 2.5 times eager's speed with 16 and 8 features, 0.4 with 32
    and 64, whose outputs leave word by word (with gradients 1.7 to 2.2 times; `sweep_h200.json`)."""
    return features <= m.choices.most_features


def strided_weight_pays(m: Machine, weight_bytes: int) -> bool:
    """The same of a transposed convolution with strides, in two dims: 64 channels of 4x4 with stride 2 took 5.36 ms
    where torch.compile's took 2.69, of 3x3 1.28 for 2.50 (H200)."""
    return weight_bytes <= m.choices.most_strided_bytes


def attention_pays(m: Machine, dtype: str, features: int) -> bool:
    """Whether PyTorch's fused attention beats two products with the softmax between, by the features of a head: in
    float32 with 32 and 64 of them it takes 0.52 to 0.85 of the time of the better of eager and torch.compile, forward,
    and 0.67 to 0.98 with gradients; with 96 and a mask 1.03 and 1.17, with 256 2.2 and 1.64. In bfloat16 0.09 to 0.38,
    and 0.24 to 0.81 (H100; `notes.md`, "Attention that is written out"). float16 is taken by likeness, not measured."""
    most = m.choices.most_features_of_heads if dtype == "float32" else m.choices.most_features_of_half_heads
    return dtype in ("float32", "float16", "bfloat16") and not features % 8 and 0 < features <= most


def walking_pays(m: Machine, channels: int, dims: int, item_bytes: int) -> bool:
    """Whether walks along planes are worth an estimate: not over 64 channels in two dims, where streams are the faster
    in all that was raced; over 32 walks are (`divisions_h200.json`). Of a half type they take 1.9 to 6.0 times their
    estimate: the best of each of three chains 2.2, 2.5 and 2.4 ms, where tiles by warps or streams take 0.8, 1.05 and
    1.7 (64 x 256 x 256, 3x3, H100, `divisions_bf16_h100.json`). In TF32 six kernels of four shapes take 1.6 to 2.4
    times as long as streams (`divisions_tf32_h100.json`). What takes the time of half types is not known: loads of two
    bytes each, of rows that begin anywhere. Half types in one dim are taken by likeness; floats' walks there are the
    faster ones (`divisions_h200.json`)."""
    return channels <= m.choices.most_walked or dims > 2 or (dims == 1 and item_bytes > 2)


def writing_less_pays(m: Machine, saved: int) -> bool:
    """Whether two further small kernels are worth it, for so many bytes that are neither written nor read three times
    and more."""
    return 3 * saved >= 2 * m.choices.launch_bytes


def front_pays(m: Machine, instructions: int) -> bool:
    """Whether a chain may run for each element that is staged, several times where boxes overlap."""
    return instructions <= m.choices.most_in_front


def repeating_pays(m: Machine, reduced: int, rows: int) -> bool:
    """Whether rows may be reduced anew for further ones along which they are repeated."""
    return reduced * m.choices.most_repeated >= rows


def reading_pays(m: Machine, tensors: int) -> bool:
    """Whether a value that reads so many tensors of its size is computed again by each of its readers."""
    return tensors <= m.choices.most_read


def launches_pay(m: Machine, kernels: int, saved_bytes: int) -> bool:
    """Whether so many further small kernels take less time than memory traffic that they save."""
    return kernels * m.choices.launch_bytes <= saved_bytes


def small_product_pays(m: Machine, products: int) -> bool:
    """Whether a small matrix product is written as products and their sum: in float32 whatever may be rounded, since
    means of a whole space differ little."""
    return products <= m.choices.most_small_products


def pooled_kernel_pays(m: Machine, share: float) -> bool:
    """Whether a convolution that has such a share of the multiply-adds is better than one with a pool behind it."""
    return share <= m.choices.most_pooled_share


def averaging_pays(m: Machine, elements: int, whole: int) -> bool:
    """Whether a term of so many elements is averaged for itself, not added to the whole before."""
    return elements * m.choices.least_smaller <= whole
