"""Names of what a kernel reads: one for each tensor and way of reading it."""

from __future__ import annotations

from crucible.plan.join import with_own_names
from crucible.plan.lazy import leaf

ROWS, COLUMNS = (3, 1), (1, 2)


def test_a_tensor_read_in_two_ways_has_two_names_and_neither_is_another_tensors() -> None:
    read = [("x", ROWS), ("x", COLUMNS), ("x_2", COLUMNS), ("x", ROWS)]
    values = with_own_names([leaf(name, (2, 3), strides, "float32") for name, strides in read])
    names = [value.operands[0].name for value in values]
    assert names[0] == names[3] and len({*names}) == 3
    assert [value.tensors[name] for value, name in zip(values, names, strict=True)] == [name for name, _ in read]
    assert all(value.expr is value.operands[0].leaf for value in values)


def test_a_reserved_name_is_nobody_elses() -> None:
    (value,) = with_own_names([leaf("x", (2, 3), ROWS, "float32")], reserved=["x", "x_2"])
    (operand,) = value.operands
    assert operand.name not in ("x", "x_2") and value.tensors == {operand.name: "x"}
