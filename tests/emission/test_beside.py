"""Small kernels in one launch."""

from __future__ import annotations

from dataclasses import replace

import kernel_corpus
from crucible.algebra.buffer import Buffer
from crucible.emission.beside import side_by_side
from crucible.gpus import H200
from crucible.print.entries import entered, whole
from crucible.print.written import BLOCK, Entry, Kernel, Lowered


def kernel(name: str, reads: str, writes: str, blocks: int = 2, threads: int = 256, **rest: object) -> Kernel:
    """Of tensors named by a letter each."""
    given = [("const float* __restrict__", each) for each in reads] + [("float* __restrict__", each) for each in writes]
    entry = Entry(tuple(given), (f"    {writes[0]}[{BLOCK} * {threads} + threadIdx.x] = 0;",))
    found = entered(name, entry, (), tuple(reads), tuple(writes), blocks, threads)
    return replace(found, **rest)  # type: ignore[arg-type]


def of(kernel: Kernel, **changed: object) -> Kernel:
    """Whose function has other parts."""
    assert kernel.entry
    return replace(kernel, entry=replace(kernel.entry, **changed))  # type: ignore[arg-type]


def names(*kernels: Kernel, **variables: str) -> list[str]:
    lowered = (Lowered(kernels[:1], (Buffer("b", "float32", 8),)), Lowered(kernels[1:], (), ("a note",)))
    found = side_by_side(lowered, variables, H200)
    assert [buffer.name for each in found for buffer in each.buffers] == ["b"]
    assert [note for each in found for note in each.notes] == ["a note"]
    return [each.name for part in found for each in part.kernels]


BIG = {"blocks": 5000}


def test_kernels_that_wait_for_nothing_between_them_share_a_launch() -> None:
    assert names(kernel("k_sums", "a", "b"), kernel("k_pack", "w", "p")) == ["k_sums_beside_pack"]
    assert names(kernel("k_sums", "a", "b"), kernel("k_finish", "b", "c")) == ["k_sums", "k_finish"]
    assert names(kernel("k_sums", "a", "b"), kernel("k_sums_too", "c", "a")) == ["k_sums", "k_sums_too"]  # a is read
    assert names(kernel("k_sums", "a", "b"), kernel("k_pack", "v", "p"), v="b") == ["k_sums", "k_pack"]  # one tensor


def test_one_goes_up_or_down_where_the_other_is() -> None:
    main = kernel("k_main", "p", "y", shared_bytes=64)
    assert names(kernel("k_sums", "a", "b"), kernel("k_x", "b", "p", shared_bytes=64), kernel("k_pack", "w", "q")) == [
        "k_sums_beside_pack",
        "k_x",
    ]
    assert names(kernel("k_finish", "b", "c"), main, kernel("k_last", "y", "z")) == ["k_main", "k_finish_beside_last"]
    assert names(kernel("k_pack", "w", "p"), main, kernel("k_last", "y", "z")) == ["k_pack", "k_main", "k_last"]


def test_beside_large_kernels_go_light_ones_alone() -> None:
    light = kernel("k_pack", "w", "p", is_light=True)
    assert names(kernel("k_sums", "a", "b", **BIG), light) == ["k_sums_beside_pack"]
    assert names(kernel("k_sums", "a", "b", **BIG), replace(light, is_light=False)) == ["k_sums", "k_pack"]
    assert names(kernel("k_sums", "a", "b"), replace(light, architecture="sm_90a")) == ["k_sums", "k_pack"]


def test_static_shared_memory_is_not_added_up() -> None:
    sums, finish = (of(each, has_shared=True) for each in (kernel("k_sums", "a", "b"), kernel("k_finish", "c", "d")))
    assert names(sums, finish) == ["k_sums", "k_finish"]
    assert names(sums, kernel("k_finish", "c", "d")) == ["k_sums_beside_finish"]


def test_the_first_blocks_are_one_kernels_and_the_others_are_told_theirs() -> None:
    (found,) = side_by_side((Lowered((kernel("k_sums", "ab", "c", 7, 128), kernel("k_pack", "w", "p", 3))),), {}, H200)
    (both,) = found.kernels
    assert both.grid == (10, 1, 1) and both.threads == 256
    assert (both.reads, both.writes) == (("a", "b", "w"), ("c", "p"))
    sums, pack = both.preamble
    assert "void k_sums_part(const float* __restrict__ a" in sums and "c[blockIdx.x * 128" in sums
    assert "void k_pack_part(const int block_number, const" in pack and "p[block_number * 256" in pack
    assert "if (threadIdx.x < 128) k_sums_part(tensor_0, tensor_1, tensor_2);" in both.text
    assert " k_pack_part(blockIdx.x - 7, tensor_3, tensor_4);" in both.text
    assert "const float* __restrict__ tensor_3,\n        float* __restrict__ tensor_2," in both.text


def test_one_whose_helpers_ask_for_the_block_is_the_first() -> None:
    helped = of(kernel("k_helped", "w", "p"), asks_elsewhere=True)
    sums = kernel("k_sums", "a", "b")
    assert names(sums, helped) == ["k_helped_beside_sums"]
    assert names(replace(helped, name="k_too", reads=("a",), writes=("b",)), helped) == ["k_too", "k_helped"]


def test_several_share_one() -> None:
    sums, pack, more = kernel("k_sums", "a", "b", 7), kernel("k_pack", "w", "p", 3), kernel("k_more", "c", "d", 2)
    (found,) = side_by_side((Lowered((sums, pack, more)),), {}, H200)
    (all_,) = found.kernels
    assert all_.grid == (12, 1, 1) and "k_more_part(blockIdx.x - 10, tensor_4, tensor_5);" in all_.text
    assert "k_pack_part(blockIdx.x - 7, tensor_2, tensor_3);" in all_.preamble[-2]


def test_a_kernel_whose_function_is_a_text_stands_alone() -> None:
    alone = replace(kernel("k_pack", "w", "p"), entry=None)
    assert names(kernel("k_sums", "a", "b"), alone) == ["k_sums", "k_pack"]


def test_an_entry_is_its_kernel() -> None:
    """What is printed says where it asks for its block, and what it has of shared memory."""
    steps = kernel_corpus.imported("test_families").STEPS.values()
    for each in (kernel for step in steps for kernel in step.lowered.kernels):
        assert each.entry and whole(each.entry, each.name, each.threads) == each.text
        own = "\n".join([*each.preamble, *each.entry.before])
        assert each.entry.asks_elsewhere == (BLOCK in own)
        assert each.entry.has_shared == ("__shared__" in "".join([*each.preamble, each.text]))
