"""Runs in, the page's text out."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from crucible import legible
from crucible.report.page.comparison import compared
from crucible.report.page.error_maps import drawn
from crucible.report.page.facts import Page, page_of
from crucible.run import Run

HERE = Path(__file__).parent


def render(runs: Sequence[Run]) -> str:
    """The page of these runs: self-contained HTML."""
    page = page_of(runs)
    style, script = _asset("page.css"), _asset("page.js")
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            style=Markup(style),
            script=Markup(script),
            policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'",
            data=Markup(embedded(_data(page))),
        )
    )


def embedded(data: Any) -> str:
    """JSON that cannot end the element it stands in, nor be read as HTML."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 and U+2029 are escaped too
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _data(page: Page) -> Any:
    """What the script works on: numbers to compare, error maps to draw."""
    comparisons = {section.id: compared(section) for section in page.sections}
    maps = {one.id: drawn(one) for section in page.sections for entry in section.entries for one in entry.maps}
    return _cleaned({"comparisons": comparisons, "maps": maps})


def _cleaned(data: Any) -> Any:
    if isinstance(data, str):
        return legible.lines(data)
    if isinstance(data, dict):
        return {key: _cleaned(value) for key, value in data.items()}
    return [_cleaned(item) for item in data] if isinstance(data, list | tuple) else data


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["ticked"] = _ticked
    return environment


def _finalize(value: Any) -> Any:
    return legible.lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _ticked(text: str) -> Markup:
    """Escaped, with what stands between backticks as code."""
    parts = legible.lines(text).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts))


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a Content-Security-Policy names an inline element's text."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
