"""The cost model: clocks of what kernels have to do, by a GPU's record.

Kinds and planners count (products, wavefronts, sectors, elements, rounds); each function here takes such counts and a
`Machine`, and gives clocks of one multiprocessor unless it says otherwise. `milliseconds` makes time of them. Nobody
else has constants of time or instructions (`tests/write/test_costs.py`).

`benchmarks/notes.md` compares estimates with what was measured; `tests/write/test_estimates.py` and
`test_divisions_measured.py` hold them there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from crucible.schedule.machine import Machine

SECTOR_BYTES = 32


def milliseconds(m: Machine, clocks: float, sms: int) -> float:
    """For clocks of so many multiprocessors together."""
    return clocks / sms / (m.sm.ghz * 1e6)


def overlapping(m: Machine, parts: Iterable[float]) -> float:
    """Of times that go on beside each other: none hides behind another wholly."""
    return math.pow(sum(math.pow(part, m.sm.sharpness) for part in parts), 1 / m.sm.sharpness)


# blocks of warps, by mma.sync


@dataclass(frozen=True)
class Work:
    """Of a block, in clocks of its multiprocessor."""

    tensor_cores: float
    fragments: float
    """Wavefronts of loads for tensor cores from shared memory, one a clock."""
    passed: float
    """All other wavefronts: of loads and stores to shared memory and to memory."""
    issued: float
    """To issue the instructions that go with these."""
    waited: float
    """In which no warp of the block can do anything."""
    traffic: float
    """Until memory and L2 have served what is read and written."""

    def clocks(self, m: Machine, blocks: int) -> float:
        """Where so many blocks share a multiprocessor: what is busiest, or what a block does one by one."""
        one_by_one = max(self.tensor_cores, self.fragments) + self.passed + self.issued + self.waited
        if blocks > 1:
            one_by_one *= m.warps.beside / blocks
        passed = m.warps.contended * (self.fragments + self.passed)
        return overlapping(m, (self.tensor_cores, passed, self.issued, self.traffic, one_by_one))

    def total(self, m: Machine, items: int, blocks: int, sms: int) -> float:
        """Of so many multiprocessors together until the last of the items is done, each of which is such work: what
        all of them do together, or one block after another that has most of them and the multiprocessor to itself. (64
        channels, 3 x 3 x 3 taps with stride 2, 16 items: 0.108 ms on the H200, 0.03 divided further.)"""
        most = -(-items // (blocks * sms))
        alone = replace(self, traffic=m.warps.alone * self.traffic)
        return max(items * self.clocks(m, blocks), sms * most * alone.clocks(m, 1))


def strided(m: Machine, clocks: float, is_strided: bool) -> float:
    """Of a weight's gradient, for what it would take if its source were read without strides."""
    return clocks * (m.warps.strided_times if is_strided else 1)


def tiles_times(m: Machine, *, is_exact: bool, phased: bool, halves: bool = False) -> float:
    """What an estimate of tiles by warps is to be multiplied by, against those of warpgroups."""
    if not is_exact:
        return m.warps.half_times if halves else 1
    return m.warps.exact_phased_times if phased else m.warps.exact_times


def tiles_against(m: Machine, *, is_exact: bool, streams: bool) -> float:
    """And by how much more where streams are what else could be chosen."""
    return m.choices.beside_streams_times if streams and not is_exact else 1


def sector_traffic(m: Machine, sectors: float) -> float:
    """For sectors that are copied."""
    return sectors * SECTOR_BYTES / m.sm.copied_bytes


def byte_traffic(m: Machine, count: float) -> float:
    """For bytes that are copied."""
    return count / m.sm.copied_bytes


def warp_products(m: Machine, count: float) -> float:
    """Of 16x8x8 products."""
    return count * m.warps.product_clocks


def depth_steps(m: Machine, count: float) -> float:
    """That steps along positions wait beyond their products."""
    return m.warps.depth_clocks * count


def load_rounds(m: Machine, count: float) -> float:
    """That rounds of loads are waited for."""
    return count * m.warps.round_clocks


def staged_units(m: Machine, count: float, *, ahead: bool) -> float:
    """To issue what brings 16 bytes so many times."""
    each = m.warps.ahead_instructions if ahead else m.warps.staged_instructions
    return count * each / m.sm.issued


def spread_windows(m: Machine, count: float, elements: int) -> float:
    """To issue what spreads windows of 16 bytes of channels over their elements, each a test whose lanes part."""
    w = m.warps
    return count * (w.window_instructions + w.spread_instructions * elements) / (m.sm.issued / w.spread_times)


def upstream_words(m: Machine, warps: float) -> float:
    """To issue what stages a gradient, 32 words a warp."""
    return m.warps.upstream_instructions * warps / _schedulers(m)


def warp_chain(m: Machine, warps: float, slots: int, tensors: int) -> float:
    """Of chains with functions of so many instructions that read other tensors, for 32 outputs so many times."""
    return warps * (slots / m.warps.slots_a_clock + m.warps.loaded_clocks * max(0, tensors - 1))


def tile_slices(m: Machine, count: int) -> float:
    """That slices of products through a tile make warps wait."""
    return count * m.warps.slice_clocks


def reduced_products(m: Machine, warps: float) -> float:
    """To issue what reduces products in registers, 32 a warp."""
    return warps * m.warps.reduced_instructions / _schedulers(m)


def placed_products(m: Machine, warps: float) -> float:
    """To issue what takes products through the tile, 32 a warp."""
    return warps * m.warps.placed_instructions / _schedulers(m)


def pooled_products(m: Machine, warps: float, values: float) -> float:
    """To issue what pools products in registers, 32 a warp, and stores values, 32 a warp."""
    return warps * m.warps.pooled_instructions / _schedulers(m) + values * m.warps.window_clocks


def folded_products(m: Machine, warps: float, outputs: float) -> float:
    """To issue what adds up products of taps that are channels, 32 a warp, to outputs, 32 a warp."""
    return warps / _schedulers(m) + outputs * m.warps.folded_instructions / _schedulers(m)


def folded_wavefronts(m: Machine, outputs: float, taps: int) -> float:
    """For the same."""
    return outputs * (m.warps.fold_wavefronts * taps + m.warps.folded_wavefronts)


def _schedulers(m: Machine) -> float:
    return m.sm.issued / 32


# warpgroups


def warpgroup_products(m: Machine, columns: float, rows: int) -> float:
    """Of an instruction: of tensor cores, or of shared memory where both operands come from there."""
    return max(m.sm.column_clocks * columns, (columns + rows) * SECTOR_BYTES / m.sm.shared_bytes)


def walked_sectors(m: Machine, sectors: float, runs: float = 0) -> float:
    """For sectors that move, runs of results each in a copy."""
    return sectors * SECTOR_BYTES / m.sm.walked_bytes + m.walks.run_clocks * runs


def walked_bytes(m: Machine, count: float) -> float:
    """For bytes that move in whole sectors."""
    return count / m.sm.walked_bytes


def walked_rounds(m: Machine, rounds: int, units: int) -> float:
    """Of a warpgroup that stages, for rounds of loads and for the 16 bytes that a thread has in them."""
    return rounds * m.walks.stage_clocks + units * m.walks.unit_clocks


def walked_plane(
    m: Machine, *, instructions: int, columns: int, rows: int, finished: int, groups: int, in_bulk: bool, sums: int,
    loads: int, slots: int, functions: int, staged: float, moved: float,
) -> float:  # fmt: skip
    """For a plane of so many instructions, whose chain runs in registers or over rows of the tile: for `finished` of
    its rows, with functions of so many instructions that branch or do not."""
    multiplied = instructions * warpgroup_products(m, columns, rows) + m.walks.hand_over_clocks
    chains = m.chains
    each = chains.fetching_instructions if sums or (in_bulk and loads) else chains.element_instructions
    if not in_bulk:
        each = chains.row_instructions + max(loads * chains.row_load_instructions, sums * chains.row_sum_instructions)
    each += slots * chains.slot_instructions + functions
    chained = columns * finished * each / m.sm.issued + m.walks.chain_clocks
    return max(multiplied, (multiplied + chained) / groups, staged, moved)


def walked_items(m: Machine, rounds: int, planes: float, *, waits: bool) -> float:
    """Of items one after another, each of so many clocks; whether it waits for its first planes."""
    return rounds * (planes + (m.walks.first_clocks if waits else m.walks.first_clocks / 4))


def stepped(m: Machine, clocks: float, *, is_stepped: bool) -> float:
    """Of walks along planes of two dims, whose channels are several instructions' where float32 is rounded."""
    return clocks * (m.walks.stepped_times if is_stepped else 1)


def phase_plane(
    m: Machine, *, phases: int, products: float, issued: float, moved: float, groups: int, staged: float
) -> float:
    """For a plane's phases: of the warpgroup that stages; of those that multiply, each of which runs a chain of so many
    instructions over so many bytes behind its products, while tensor cores take what all of them have."""
    chain = issued * m.phases.issue_clocks + moved / m.sm.chained_bytes
    alone = phases * (m.phases.turn_clocks + chain) / groups
    return max(_beside(alone, products / groups, groups), staged)


def phase_rows(m: Machine, clocks: float, columns: int, tensors: int) -> float:
    """Of rows of so many outputs that are written to so many tensors, for what they would take if two neighbours always
    were at one place of 8 bytes."""
    return clocks * (m.phases.odd_times if columns % 2 and tensors else 1)


def phase_products(m: Machine, instructions: int, columns: float) -> float:
    """Of instructions that wait for nobody."""
    return instructions * columns * m.sm.column_clocks


def phase_stage(m: Machine, values: int, groups: int, *, ahead: bool) -> float:
    """Of the warpgroup that stages so many values a thread, beside warpgroups that multiply; all of them issue in
    turn."""
    plane: float = m.phases.store_clocks + values * m.phases.value_clocks + (0 if ahead else m.sm.load_clocks)
    return plane * ((1 + groups) / (1 + m.phases.values_beside))


def function_instructions(m: Machine, slots: int) -> int:
    """Of a function of so many, as if it were in the caches."""
    return slots * m.chains.large_times if slots >= m.chains.large_instructions else slots


def _beside(alone: float, products: float, groups: int) -> float:
    """How long so many warpgroups take, each for what it does alone and then its products, which take longer while
    others have theirs: what another one has under way at a random time is added."""
    difference = alone - groups * products
    return (alone + groups * products + math.sqrt(difference * difference + 4 * alone * products)) / 2


def pooled_element(m: Machine, *, kind: str, followed: bool, keeps: bool, ends: int, functions: int) -> int:
    """In which a warp issues what a product does to its window: `followed` where one extreme is, `ends` where both or
    either end is, functions of so many instructions where values are compared."""
    if kind == "avg":
        return 1
    if followed:
        return m.pools.followed_clocks if keeps else m.pools.extreme_clocks
    return m.pools.extreme_clocks * ends if ends else m.pools.compared_clocks + functions


def pooled_stage(m: Machine, values: int) -> float:
    """Of the warpgroup that stages so many values a thread."""
    return m.sm.load_clocks + values * m.pools.staged_instructions


def pooled_plane(
    m: Machine, *, instructions: int, first: int, passes: int, columns: int, rows: int, channels: int, element: int,
    tensors: int, groups: int, staged: float, moved: float,
) -> float:  # fmt: skip
    """For a plane of windows, whose elements come in passes, the first of so many instructions: of tensor cores, of
    what a warpgroup does with its products, of the one that stages, of memory."""
    multiplied = phase_products(m, instructions, columns) + passes * m.walks.hand_over_clocks
    a_pass = columns * rows * element / m.sm.issued
    window = m.pools.window_instructions + m.pools.stored_instructions * tensors
    left = columns * channels * window / m.sm.issued
    finished = passes * a_pass + left
    # when all others have made the first pass of their planes, it is the turn of the one that is at the end of its
    others = (groups - 1) * phase_products(m, first, columns)
    multiplied += max(0.0, a_pass + left - others) / groups
    both = multiplied + finished + m.walks.chain_clocks
    return max(multiplied, finished, both / groups, staged, walked_bytes(m, moved))


def pooled_start(m: Machine) -> float:
    """Until weights are in order."""
    return m.pools.start_clocks


def scattered_tile(
    m: Machine, *, products: int, columns: int, inputs: float, accesses: float, copies: float, chunks: int, rounds: int,
    teams: int, moved: float,
) -> float:  # fmt: skip
    """For a tile: products of all weights' columns with inputs from registers; wavefronts of inputs and of accesses to
    sums; copies of rows; rounds of adding up."""
    tensor = products * columns * m.sm.column_clocks
    weights = products * columns * SECTOR_BYTES / m.sm.shared_bytes
    shared = weights + inputs + accesses + m.scatter.row_wavefronts
    alone = tensor + chunks * m.scatter.latency_clocks + m.scatter.latency_clocks + m.scatter.barrier_clocks * rounds
    return max(m.sm.beyond * max(tensor, shared), alone / teams, copies * m.scatter.copy_clocks, moved)


def scattered_items(m: Machine, rounds: int, tiles: float) -> float:
    """Of items one after another, each of so many clocks for its tiles."""
    return rounds * (tiles + m.scatter.item_clocks)


class Stage(NamedTuple):
    """What is done with one plane of input and the weights beside it, over all steps of channels."""

    steps: int
    products: int
    """Instructions."""
    columns: float
    """Of one, in the mean."""
    elements: int
    """That are staged."""
    passed: float
    """Wavefronts of these, in and out."""
    weights: float
    """Bytes."""
    read: float
    """Bytes of input."""
    waited: float
    """By those that stage, a step."""


def streamed_rounds(m: Machine, rounds: int, waits: int, *, cached: bool) -> float:
    """In which a thread that stages loads and stores so many positions, and waits so many times until some have
    come."""
    return waits * (m.streams.l2_clocks if cached else m.streams.memory_clocks) + rounds * m.streams.round_clocks


def streamed_windows(m: Machine, rounds: int, waits: int, elements: int) -> float:
    """The same of windows, each spread over so many elements."""
    each = m.streams.window_clocks + m.streams.window_element_clocks * elements
    return waits * m.streams.memory_clocks + rounds * each


def streamed_plane(
    m: Machine, stages: Iterable[Stage], *, rows: int, made: int, kept: float, tensors: int, loads: int, slots: int,
    sums: int, crossings: int, apart: bool, written: float, exact: bool,
) -> float:  # fmt: skip
    """For a plane of so many outputs, of whose channels so many sums are taken; of those beyond a row's end, which are
    not kept, functions alone take time, where other lanes of a warp have some. What is staged passes shared memory
    twice, coming from L1 and going in. Chains hold tensor cores up, where the other warpgroup is at its own; rows of
    what they load may lie apart from sectors."""
    chains, streams = m.chains, m.streams
    each = chains.fetching_instructions if sums else chains.element_instructions
    functions = made * chains.slot_instructions * slots / m.sm.issued
    own = kept * (each * tensors + streams.crossing_instructions * crossings) / m.sm.issued
    cores, issued = own + functions * (1 if sums else streams.chain_share), own + functions
    weight_times = m.sm.l2_times * (streams.exact_weight_times if exact else streams.weight_times)
    passed = moved = waited = 0.0
    for stage in stages:
        cores += stage.products * warpgroup_products(m, stage.columns, rows) + stage.steps * streams.stage_clocks
        operands = (rows + stage.columns) * SECTOR_BYTES / m.sm.shared_bytes
        passed += stage.products * operands + stage.passed + stage.weights / m.sm.shared_bytes
        issued += stage.elements * streams.staged_instructions / m.sm.issued
        waited += stage.steps * stage.waited
        moved += stage.read + stage.weights / weight_times
    moved += SECTOR_BYTES * tensors * written
    loaded = made * loads * (streams.apart_clocks if apart else streams.loaded_clocks) / m.sm.issued
    return overlapping(m, (cores, passed, issued, waited, loaded, moved / m.sm.streamed_bytes))


def streamed_items(m: Machine, rounds: int, planes: float, *, fetches: bool) -> float:
    """Of items one after another, each of so many clocks for its planes; whether rows of planes that are staged several
    times, which the L2 cache has, are asked for ahead."""
    return rounds * (planes + m.streams.first_clocks) * (m.streams.fetched_times if fetches else 1)


# gradients of weights, by warpgroups


def weight_products(m: Machine, *, instructions: int, columns: int, steps: int, teams: int) -> float:
    """Of steps of so many instructions, dealt to warpgroups which overlap."""
    step = instructions * max(m.sm.column_clocks * columns, m.wgrad.least_clocks)
    return steps * max(step, (step + m.wgrad.step_clocks) / teams) * m.sm.beyond


def weight_plane(m: Machine, rounds: int, pieces: int, *, loads: int, units: int, packed: bool, raw: bool) -> float:
    """Of a warp that stages a plane in rounds of pieces, each of so many loads and 16 bytes stored; it is by itself on
    its scheduler, so that it waits for each of its instructions."""
    w = m.wgrad
    stored = units * (w.packed_clocks if packed else w.unit_clocks)
    each = w.round_clocks + pieces * (loads * w.read_clocks + stored)
    return w.plane_clocks + rounds * (each if raw else each + w.load_clocks)


def weight_copies(m: Machine, count: int) -> float:
    """Of a warp that brings a plane by so many bulk copies."""
    return m.wgrad.bring_clocks + count * m.wgrad.copy_clocks


def weight_wavefronts(m: Machine, count: float) -> float:
    """Through L1 and shared memory."""
    return m.warps.contended * count


def weight_sectors(m: Machine, grads: float, read: float, *, shared: bool, raw: bool) -> float:
    """For sectors of the gradient, which several parts may share, and of the input."""
    moved = walked_sectors(m, grads * (m.wgrad.shared_share if shared else 1.0) + read)
    return moved if raw else moved * m.wgrad.by_threads


def weight_items(m: Machine, rounds: int, planes: float, first: float, words: int) -> float:
    """Of items one after another, and of so many words of sums that go to memory and are read by another kernel."""
    finished = walked_bytes(m, 2 * words * 4) + m.wgrad.finish_clocks
    return rounds * (planes + first + m.wgrad.step_clocks) + finished


# programs


def program(m: Machine, moved: int, issued: int) -> float:
    """Of one that moves so many bytes and issues so many instructions of functions, of all multiprocessors together:
    two Mish of 528 million elements, 104 instructions each, are 1.85 ms; task 4 of level 2 leaves about 2.0 for them on
    an H200, its convolution and a copy taken off."""
    return max(byte_traffic(m, moved), issued / m.sm.issued)


# products of matrices


def product_step(m: Machine, *, turned: bool, mixed: bool) -> float:
    """Of 32 of the depth of a tile."""
    products = m.products
    if mixed:
        return products.turned_mixed_clocks if turned else products.mixed_clocks
    return products.turned_clocks if turned else products.step_clocks


def product_rounds(m: Machine, rounds: int, steps: float, *, added: int) -> float:
    """Of rounds of tiles, each of all its steps; bytes that parts of the depth are added up from and to."""
    return rounds * (steps + m.products.round_clocks) + added / m.sm.all_bytes


def library_convolution(m: Machine, flops: int, dims: int, *, phased: bool, exact: bool = False) -> float:
    """Of cuDNN in TF32, or where float32 is kept, all multiprocessors."""
    library = m.library
    if exact:
        return flops / library.exact_flops
    return flops / (library.phased_flops if phased else library.plane_flops if dims < 3 else library.space_flops)


def library_gradient(m: Machine, flops: int) -> float:
    """Of cuDNN where float32 is kept, of the gradient of input or weight, all multiprocessors."""
    return flops / m.library.exact_gradient_flops


def library_product(m: Machine, flops: int) -> float:
    """Of cuBLAS in float32, all multiprocessors."""
    return flops / m.products.library_flops
