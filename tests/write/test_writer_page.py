"""The example of docs/writer.md, as it stands there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from crucible.kernel import index, meaning
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.verify import verify
from crucible.print.cuda import printed

PAGE = Path(__file__).parents[2] / "docs" / "writer.md"


def example() -> Any:
    found = re.search(r"(    def row_sums\(.*?)\n\n\d", PAGE.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"ir": ir, "Builder": Builder, **vars(index)}
    exec(textwrap.dedent(found[1]), names)
    return names["row_sums"]


def test_the_example_is_a_kind() -> None:
    kernel = example()(5, 70)
    x = np.random.default_rng(0).standard_normal((5, 70))
    assert verify(kernel) == ()
    np.testing.assert_allclose(meaning.run(kernel, {"x": x.ravel()})["out"], x.sum(1), rtol=1e-12)
    text = printed(kernel).text
    assert "for (unsigned column = threadIdx.x; column < columns; column += warp) {" in text
    assert "total = sum_over_team<warp>(total);" in text


def test_the_verifier_says_what_the_page_says() -> None:
    names = example().__globals__
    source = PAGE.read_text()
    found = re.search(r"(    def row_sums\(.*?)\n\n\d", source, re.DOTALL)
    assert found is not None
    exec(textwrap.dedent(found[1]).replace("row * size + column", "row * size + column + 1"), names)
    assert any("x is read or written at 1 to 350" in each for each in verify(names["row_sums"](5, 70)))
