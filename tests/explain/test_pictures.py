"""Which planes of a wrong tensor are kept to be looked at."""

from __future__ import annotations

from explaining import compared, oracle

from crucible.judge.diagnosis.mapping import MOST_PICTURES, MOST_SLICES


def test_planes_go_through_the_worst_element_along_channels_and_along_slices() -> None:
    want = oracle(2, 40, 9, 5, 6)
    got = want.float().clone()
    got[:, 3:30] += 0.5
    got[1, 7, 4, 2, 2] += 100
    error = compared(got, want)
    assert error.worst_index == (1, 7, 4, 2, 2) and error.map is not None
    planes = {picture.index for picture in error.map.pictures}
    along = [
        {plane[dim] for plane in planes if all(plane[d] == (1, 7, 4)[d] for d in range(3) if d != dim)}
        for dim in range(3)
    ]
    assert (1, 7, 4) in planes
    assert along[0] == {0, 1} and len(along[1]) == MOST_PICTURES and MOST_SLICES <= len(along[2]) <= MOST_SLICES + 1
    assert along[1] <= set(range(3, 30)), "channels with errors come first"
    assert all(sum(a != b for a, b in zip(plane, (1, 7, 4), strict=True)) <= 1 for plane in planes)
