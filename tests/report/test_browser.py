"""The page in a real browser, on a phone's width: the policy lets its own script run, controls do what they say."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from reading import Reader
from recorded import whole_run

from crucible.report.page.render import render

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
HOSTILE = '<img src=x onerror="document.title=1"></script>' + "long" * 30
LOOK = """
const all = (what) => [...document.querySelectorAll(what)];
const change = (one, value) => { one.value = value; one.dispatchEvent(new Event("change", { bubbles: true })); };
const words = (what) => document.querySelector(what).textContent;
const seen = { title: document.title, scripted: document.documentElement.className };
document.body.style.maxWidth = "390px";
document.body.style.margin = "0";
const scrolls = (one) => one && (getComputedStyle(one).overflowX !== "visible" || scrolls(one.parentElement));
seen.beyond = all("body *").filter((one) => one.getBoundingClientRect().right > 390.5 && !scrolls(one.parentElement))
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


def watched(page: str) -> str:
    """The page with one more script, which its policy is told of."""
    digest = base64.b64encode(hashlib.sha256(LOOK.encode()).digest()).decode()
    assert page.count("script-src &#39;") == 1
    page = page.replace("script-src &#39;", f"script-src &#39;sha256-{digest}&#39; &#39;")
    return page.replace("</body>", f"<script>{LOOK}</script></body>")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: what a browser makes of the page goes unseen")
def test_a_browser_shows_it_on_a_phone(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(watched(render([whole_run(HOSTILE)])))
    command = [str(BROWSER), "--headless=new", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--no-sandbox"] if os.getuid() == 0 else []
    command += ["--enable-logging=stderr", "--window-size=390,844", "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not said, said
    seen = json.loads(Reader(done.stdout.replace("<!DOCTYPE html>", "")).by_id("seen").text)
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
