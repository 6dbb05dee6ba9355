"""A candidate's limits from the options that name them."""

from __future__ import annotations

from typing import Any

from crucible.errors import MisuseError
from crucible.judge.process.limits import RANGES, Limits


def limits_of(*given: tuple[str, str, float]) -> Limits:
    """From options, fields and values. Raises MisuseError that names the option."""
    values: dict[str, Any] = {}
    for option, name, value in given:
        unit = 2**30 if option == "--memory-limit" else 1
        scaled = value * unit
        values[name] = int(scaled) if unit > 1 and abs(scaled) < 2.0**60 else scaled
        try:
            Limits(**{name: values[name]})
        except MisuseError:
            least, most, words_of = RANGES[name]
            unit_words = "GiB" if unit > 1 else words_of
            raise MisuseError(
                f"{option} {value:g}: give a number of {unit_words} from {least:g} to {most / unit:g}"
            ) from None
    return Limits(**values)
