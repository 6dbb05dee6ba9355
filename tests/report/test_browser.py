"""The page in a real browser, on a phone and on a desk: the policy lets its own script run, controls do what they
say."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reading import Reader
from recorded import many, whole_run

from crucible.report.page.render import render

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
ENGINE = importlib.util.find_spec("PyQt6") is not None and importlib.util.find_spec("PyQt6.QtWebEngineCore") is not None
HOSTILE = '<img src=x onerror="document.title=1"></script>' + "long" * 30
LOOK = """
const all = (what) => [...document.querySelectorAll(what)];
const change = (one, value) => { one.value = value; one.dispatchEvent(new Event("change", { bubbles: true })); };
const words = (what) => document.querySelector(what).textContent;
const seen = { title: document.title, width: innerWidth, scripted: document.documentElement.className };
const width = Math.min(innerWidth, WIDTH);
document.body.style.maxWidth = `${width}px`;
document.body.style.margin = "0";
const scrolls = (one) => one && (getComputedStyle(one).overflowX !== "visible" || scrolls(one.parentElement));
seen.beyond = all("body *")
  .filter((one) => one.getBoundingClientRect().right > width + 0.5 && !scrolls(one.parentElement))
  .map((one) => `${one.tagName} ${one.className} ${one.getBoundingClientRect().right}`);
seen.first = words(".plane");
seen.cells = all("[data-map] .cells path").map((path) => path.getAttribute("class"));
const [channel, slice] = all("[data-map] select");
change(slice, "0");
seen.second = words(".plane");
change(slice, "1");
seen.third = words(".plane");
document.querySelector("[data-step='1']").click();
seen.fourth = words(".plane");
seen.chosen = [channel.value, slice.value];
const sides = all("[data-compare] [data-side]");
change(sides[0], "1");
change(sides[1], "1");
seen.same = words("[data-compare] .result");
change(sides[1], "0");
seen.compared = all("[data-compare] tbody tr").map((row) => row.textContent);
const dark = () => getComputedStyle(document.body).backgroundColor;
seen.colours = [dark()];
document.getElementById("theme").click();
seen.colours.push(dark());
const fold = document.querySelector("details.source");
location.hash = fold.querySelector("[id]").id;
seen.small = all("button, select, summary, input").filter((one) => one.checkVisibility()
  && one.getBoundingClientRect().height < 16).length;
seen.unreachable = all("pre, .scroll").filter((one) => one.tabIndex < 0).length;
setTimeout(() => {
  seen.unfolded = fold.open;
  const result = document.createElement("pre");
  result.id = "seen";
  result.textContent = JSON.stringify(seen);
  document.body.append(result);
}, 50);
"""


def watched(page: str, look: str = LOOK) -> str:
    """The page with one more script, which its policy is told of."""
    digest = base64.b64encode(hashlib.sha256(look.encode()).digest()).decode()
    assert page.count("script-src &#39;") == 1
    page = page.replace("script-src &#39;", f"script-src &#39;sha256-{digest}&#39; &#39;")
    return page.replace("</body>", f"<script>{look}</script></body>")


PHONE, DESK = (390, 844), (1440, 900)


def seen_in_a_browser(file: Path, profile: Path, size: tuple[int, int] = PHONE) -> dict[str, Any]:
    """What the page's script and LOOK left behind; the console is empty."""
    command = [sys.executable, str(Path(__file__).with_name("webengine.py")), str(file), *map(str, size)]
    if BROWSER is not None:
        command = [str(BROWSER), "--headless=new", "--disable-gpu", f"--user-data-dir={profile}"]
        command += ["--no-sandbox"] if os.getuid() == 0 else []
        command += [
            "--enable-logging=stderr",
            f"--window-size={size[0]},{size[1]}",
            "--virtual-time-budget=2000",
            "--dump-dom",
        ]
        command += [file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not said, said
    html = re.sub("<!doctype html>", "", done.stdout, count=1, flags=re.IGNORECASE)
    return dict(json.loads(Reader(html).by_id("seen").text))


needs_a_browser = pytest.mark.skipif(
    BROWSER is None and not ENGINE,
    reason="neither Chromium nor PyQt6-WebEngine here: what a browser makes of the page goes unseen",
)


@needs_a_browser
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_a_browser_shows_it_whole(size: tuple[int, int], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(watched(render([whole_run(HOSTILE)]), LOOK.replace("WIDTH", str(size[0]))))
    seen = seen_in_a_browser(file, tmp_path / "profile", size)
    assert seen["width"] >= size[0]
    assert seen["scripted"] == "scripted" and seen["title"].startswith("<img src=x")
    assert not seen["beyond"], "\n".join(seen["beyond"])
    assert seen["first"].startswith("Plane [0, 1, 1, :, :], 2 × 9 elements, a cell for each")
    assert seen["cells"] == ["e0", "e1", "e2", "e3"]
    assert seen["second"].startswith("Plane [0, 1, 0,") and seen["third"].startswith("Plane [0, 1, 1,")
    assert seen["fourth"].startswith("Plane [0, 0, 0,"), "after the last comes the first"
    assert seen["chosen"] == ["0", "0"]
    assert seen["same"] == "No number differs."
    assert "Runtime2.5 ms ±0.0252 ms ±0.021.25 times" in seen["compared"]
    assert len(set(seen["colours"])) == 2
    assert seen["unfolded"] is True and seen["unreachable"] == 0 and seen["small"] == 0


FIND = """
const start = performance.now();
const all = (what) => [...document.querySelectorAll(what)].filter((one) => one.checkVisibility()).length;
const seen = { cards: all(".card"), rows: all(".ranking tbody:not(.baselines) tr") };
const [text, state] = ["[data-text]", "[data-state]"].map((what) => document.querySelector(what));
text.value = "SAMPLE_19";
text.dispatchEvent(new Event("input", { bubbles: true }));
seen.found = all(".ranking tbody:not(.baselines) tr");
state.value = "wrong";
state.dispatchEvent(new Event("input", { bubbles: true }));
seen.wrong = all(".ranking tbody:not(.baselines) tr");
seen.cards_of_these = all(".card.wrong");
seen.count = document.querySelector("[data-count]").textContent;
seen.ms = performance.now() - start;
const result = document.createElement("pre");
result.id = "seen";
result.textContent = JSON.stringify(seen);
document.body.append(result);
"""


@needs_a_browser
def test_two_hundred_candidates_are_found_among_at_once(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(watched(render([many(200)]), FIND))
    seen = seen_in_a_browser(file, tmp_path / "profile")
    assert (seen["rows"], seen["cards"]) == (200, 202)
    assert (seen["found"], seen["wrong"], seen["cards_of_these"]) == (11, 3, 3)
    assert seen["count"] == "3 of 200 candidates"
    assert seen["ms"] < 5000  # 47 here
