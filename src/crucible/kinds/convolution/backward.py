"""The gradients of a convolution with its chain.

The product is computed again, or kept by forward where that takes less (`plan/keeping.py`). Computed again, the
chain's gradient runs where the chain ran, in the same kernel, and writes the gradient of the product; kept, it is a
program that reads the product. From that come those of input and weight. What the chain shares among a channel's
elements (a bias) is added up in the same pass.

Of a pool's windows forward keeps what is left of the products, and which elements were chosen: the chain's gradient is
a program over windows, and the gradients of input and weight spread what it writes over the windows' elements.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

from crucible.algebra.adjoint import adjoint
from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.correlation import input_gradient
from crucible.algebra.convolution.fused import GIVEN, LEAF, PRODUCT, Convolution
from crucible.algebra.convolution.windows import CHOICE, Spread, Spreads, Windows
from crucible.algebra.expression import Expr, substitute, tensor
from crucible.algebra.gradient import derivative
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous, reads
from crucible.algebra.stages import partials, stages
from crucible.errors import MisuseError
from crucible.gpus import H200, Gpu
from crucible.kinds.convolution.lower import lower_convolution
from crucible.kinds.convolution.weights import lower_weight
from crucible.kinds.steps import Steps
from crucible.print.written import Lowered
from crucible.schedule.convolution.choice import chosen
from crucible.schedule.convolution.questions import Fronts, WeightGradient
from crucible.schedule.convolution.weights import chosen_for_weight


def lower_convolution_backward(
    conv: Convolution, wanted: Sequence[str], upstream: str, gpu: Gpu = H200, saved: Container[str] = ()
) -> Steps:
    """The steps that write `grad_<operand>` for the operands `wanted` on which the result depends, source and weight
    among them, laid like them. `upstream` holds the gradient of the convolution's one result; of what could be `kept`
    forward wrote what is `saved`."""
    work = _Work(conv, tuple(wanted), upstream, gpu, saved)
    work.chain()
    if work.of_product:
        work.source()
        work.weight()
    return Steps(tuple(work.steps), tuple(work.buffers), tuple(work.results))


def kept(conv: Convolution, wanted: Sequence[str], upstream: str) -> tuple[Result, ...]:
    """What forward may write besides for these gradients: `<name>_product`, where they read the product. Of a
    convolution with a pool it has to: of that what is left of the products, and of a maximum `<name>_choice`, the
    chosen elements' numbers within their windows."""
    strides = contiguous(conv.made_shape)
    product = Result(_kept_product(conv), "float32", strides, LEAF)
    choice = Result(_kept_choice(conv), "uint8", strides, CHOICE)
    work = _Work(conv, tuple(wanted), upstream, H200, (product.name,))
    work.chain()
    read = {operand.name for each in work.steps if isinstance(each, Program) for operand in each.operands}
    if work.of_product and work.spread:
        read.add(work.spread.choices)
    return tuple(each for each in (product, choice) if each.name in read)


def product_again(conv: Convolution, wanted: Sequence[str], upstream: str) -> tuple[Convolution, Program]:
    """The convolution with the gradients as its chains, where the product is computed again; and the program of these
    gradients that reads the product."""
    work = _Work(conv, tuple(wanted), upstream, H200)
    back = work.adjoint()
    return work.again(back, work.written(back)[0]), back


def _kept_product(conv: Convolution) -> str:
    return f"{conv.name}_product"


def _kept_choice(conv: Convolution) -> str:
    return f"{conv.name}_choice"


def lower_product_backward(conv: Convolution, wanted: Sequence[str], of_product: str, gpu: Gpu = H200) -> Steps:
    """The steps for the gradients of source and weight alone, where they are `wanted`. `of_product` holds that of the
    product, contiguous."""
    work = _Work(conv, tuple(wanted), of_product, gpu, of_product=of_product)
    work.source()
    work.weight()
    return Steps(tuple(work.steps), tuple(work.buffers), tuple(work.results))


@dataclass
class _Work:
    conv: Convolution
    wanted: tuple[str, ...]
    upstream: str
    gpu: Gpu
    saved: Container[str] = ()
    steps: list[Lowered | Program] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    of_product: str = ""
    """The tensor that holds the gradient of the product."""

    @property
    def strides(self) -> tuple[int, ...]:
        return contiguous(self.conv.made_shape)

    @property
    def spread(self) -> Spread | None:
        """How the gradient of the product is laid."""
        pool = self.conv.pool
        return Spread(pool.sizes, _kept_choice(self.conv) if pool.kind == "max" else "") if pool else None

    # the chain

    def chain(self) -> None:
        """Gradients of what the chain reads."""
        back = self.adjoint()
        if self.conv.pool is None and any(PRODUCT in reads(each.expr) for each in back.results):
            if _kept_product(self.conv) in self.saved:
                self._by_programs(_reading_kept(back, self.conv))
            else:
                self._with_product(back)
            return
        by_name = {each.name: each for each in back.results}
        product = by_name.pop(f"grad_{PRODUCT}", None)
        if product is not None and self._is_upstream(product):
            self.of_product = self.upstream
            back = replace(back, results=tuple(by_name.values()))
        if back.results:
            self._by_programs(back)

    def adjoint(self) -> Program:
        """The program of the chain's gradients, over the product."""
        conv, shape = self.conv, self.conv.made_shape
        (result,) = conv.results
        operands = (Operand(PRODUCT, "float32", self.strides), *conv.operands)
        program = Program(f"{conv.name}_chain", shape, len(shape), operands, (), (result,))
        deep = [PRODUCT] if {conv.source.name, conv.weight.name} & set(self.wanted) else []
        own = [each.name for each in conv.operands if each.name in self.wanted]
        back = adjoint(program, [*deep, *own], {result.name: self.upstream})
        return _of_windows(back, conv, conv.pool) if conv.pool else back

    def _is_upstream(self, product: Result) -> bool:
        (result,) = self.conv.results
        same = product.expr is tensor(self.upstream, result.dtype)
        return same and result.strides == self.strides and result.dtype == self.conv.source.dtype

    def _by_programs(self, back: Program) -> None:
        """What depends on the upstream gradient alone needs no product."""
        results = []
        for result in back.results:
            if result.name == f"grad_{PRODUCT}":
                self._keep_product()
                results.append(replace(result, dtype=self.conv.source.dtype))
            else:
                self.results.append(result.name)
                results.append(result)
        self.steps += self._staged(replace(back, results=tuple(results)))

    def _keep_product(self) -> None:
        self.of_product = f"grad_{PRODUCT}"
        self.buffers.append(Buffer(self.of_product, self.conv.source.dtype, math.prod(self.conv.made_shape)))

    def _with_product(self, back: Program) -> None:
        """One pass of the convolution with the gradients as its chains; then sums of what it left."""
        results, after = self.written(back)
        conv = self.again(back, results)
        again = lower_convolution(conv, gpu=self.gpu)
        self.steps.append(again)
        for each in after:
            self.steps += self._summed(each, conv, again)
            self.results.append(each.name)

    def written(self, back: Program) -> tuple[list[Result], list[Result]]:
        """What that pass writes, and the gradients that are added up behind it."""
        results, after = [], []
        for each in back.results:
            if each.name == f"grad_{PRODUCT}":
                self._keep_product()
                results.append(Result(self.of_product, self.conv.source.dtype, self.strides, each.expr))
            elif not each.sums:
                results.append(each)
                self.results.append(each.name)
            elif not any(stride for dim, stride in enumerate(each.strides) if dim != 1):
                results.append(each)
                after.append(each)
            else:
                results.append(self._each(each))
                after.append(each)
        return results, after

    def again(self, back: Program, results: list[Result]) -> Convolution:
        """The convolution that makes these results."""
        wanted = frozenset[str]().union(*(reads(each.expr) for each in results))
        operands = tuple(each for each in back.operands if each.name in wanted and each.name != PRODUCT)
        return replace(self.conv, name=f"{self.conv.name}_again", operands=operands, results=tuple(results))

    def _each(self, result: Result) -> Result:
        """A sum over other dims than batch and space: its elements, to be added up later."""
        name = f"{result.name}_each"
        self.buffers.append(Buffer(name, "float32", math.prod(self.conv.correlation.out_shape)))
        return Result(name, "float32", self.strides, result.expr)

    def _summed(self, result: Result, conv: Convolution, again: Lowered) -> tuple[Program, ...]:
        of = self.conv.correlation
        each = f"{result.name}_each"
        if any(buffer.name == each for buffer in self.buffers):
            operand = Operand(each, "float32", self.strides)
            total = replace(result, expr=operand.leaf)
            name = f"{self.conv.name}_{each}_total"
            return self._staged(Program(name, of.out_shape, len(of.out_shape), (operand,), (), (total,)))
        return (self._of_parts(result, conv, again),)

    def _staged(self, program: Program) -> tuple[Program, ...]:
        found = stages(program)
        self.buffers += partials(found)
        return found

    def _of_parts(self, result: Result, conv: Convolution, again: Lowered) -> Program:
        """What each block added up for each channel, added up over the blocks."""
        of, (buffer,) = self.conv.correlation, [b for b in again.buffers if b.name == f"{result.name}_parts"]
        tiling = chosen(conv, self.gpu)
        assert tiling is not None
        channels = tiling.padded_channels  # of a group
        blocks = buffer.elements // (of.groups * channels)
        operand = Operand(buffer.name, "float32", (0, channels, 1, of.groups * channels))
        shape = (1, of.groups, of.out_channels, blocks)
        stride = result.strides[1]
        rows, strides = (3, (0, of.out_channels * stride, stride)) if stride else (1, (0,))
        total = Reduction("total", "sum", operand.leaf)
        made = Result(result.name, result.dtype, strides, total.leaf)
        return Program(f"{self.conv.name}_{result.name}", shape, rows, (operand,), (total,), (made,))

    # input and weight

    def source(self) -> None:
        """The gradient of what is convolved."""
        conv = self.conv
        if conv.source.name not in self.wanted:
            return
        grad = Operand(self.of_product, conv.source.dtype, self.strides)
        slope, read = self._slope()
        result = Result(f"grad_{conv.source.name}", conv.source.dtype, conv.source.strides, slope)
        of = input_gradient(conv.correlation)
        turned = replace(conv, name=f"{conv.name}_input", correlation=of, source=grad, operands=read, results=(result,),
                         pool=None, spread=self.spread, front=None)  # fmt: skip
        self.steps.append(lower_convolution(turned, gpu=self.gpu))
        self.results.append(result.name)

    def _slope(self) -> tuple[Expr, tuple[Operand, ...]]:
        """The gradient of the source from that of what is multiplied, and what it reads."""
        conv = self.conv
        if conv.front is None:
            return LEAF, ()
        source = tensor(conv.source.name, conv.source.dtype)
        found = substitute(derivative(conv.front, GIVEN, LEAF), {GIVEN: source})
        return found, (conv.source,) if conv.source.name in reads(found) else ()

    def weight(self) -> None:
        """The gradient of the weight."""
        conv, of = self.conv, self.conv.correlation
        if conv.weight.name not in self.wanted:
            return
        source, grad = conv.source, Operand(self.of_product, conv.source.dtype, self.strides)
        spreads: Spreads = (None, self.spread)
        fronts: Fronts = (conv.front, None)
        if math.prod(of.phases) > 1:
            of, source, grad = input_gradient(of), grad, source
            spreads, fronts = (self.spread, None), (None, conv.front)
        result = f"grad_{conv.weight.name}"
        question = WeightGradient(f"{conv.name}_weight", of, source, grad, spreads, conv.exact, fronts)
        way = chosen_for_weight(question, self.gpu)
        if way is None:
            raise MisuseError(f"{conv.name}: no division of its weight's gradient fits in shared memory")
        self.steps.append(lower_weight(question, way, result, self.gpu))
        self.results.append(result)


def _reading_kept(back: Program, conv: Convolution) -> Program:
    """The same from what forward kept of the product."""
    name = _kept_product(conv)
    operands = tuple(replace(each, name=name) if each.name == PRODUCT else each for each in back.operands)
    results = tuple(replace(each, expr=substitute(each.expr, {LEAF: tensor(name)})) for each in back.results)
    return replace(back, operands=operands, results=results)


def _of_windows(back: Program, conv: Convolution, pool: Windows) -> Program:
    """Gradients over windows, from what forward kept; the product's as each element of a window gets it."""
    results = []
    for each in back.results:
        if each.name == f"grad_{PRODUCT}":
            share = 1 / pool.elements if pool.kind == "avg" else 1
            each = replace(each, dtype=conv.source.dtype, expr=each.expr * share if share != 1 else each.expr)
        results.append(each)
    return _reading_kept(replace(back, results=tuple(results)), conv)
