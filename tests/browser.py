"""A headless Chromium that runs the script of a page and what a test does with it.

$CHROMIUM names one that is not on PATH.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

NAMES = ["chromium", "chromium-browser", "google-chrome"]
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]

# Errors and forbidden requests, from before the first script of the page on.
WATCH = """<script>
const problems = [];
addEventListener("error", event => problems.push(event.message));
addEventListener("securitypolicyviolation", event => problems.push(event.blockedURI));
</script>"""
ACT = """<script>
const one = selector => document.querySelector(selector);
const words = selector => [...document.querySelectorAll(selector)].map(element => element.textContent);
const press = (key, more = {}) => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, ...more }));
function point(element, kind, across, down = 0.5) {
  const box = element.getBoundingClientRect();
  const [clientX, clientY] = [box.left + across * box.width, box.top + down * box.height];
  element.dispatchEvent(new PointerEvent(kind, { clientX, clientY, bubbles: true }));
}
const seen = (() => { ACTIONS })();
const report = document.createElement("pre");
report.id = "report";
report.textContent = JSON.stringify({ seen, problems });
document.body.append(report);
</script></body>"""


def find_browser() -> str:
    """The path of a Chromium; where there is none, the test is skipped."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    return found or pytest.skip("no Chromium on PATH or in $CHROMIUM: the scripts of the pages are not driven")


def seen_on(browser: str, folder: Path, page: str, actions: str) -> Any:
    """What the actions return, run as a script after those of the page, which must not have failed."""
    page = page.replace("</title>", f"</title>{WATCH}").replace("</body>", ACT.replace("ACTIONS", actions))
    path = folder / "page.html"
    path.write_text(page, "utf-8")
    command = [browser, *OPTIONS, f"--user-data-dir={folder / 'browser'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8", timeout=60)
    report = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
    assert report, done.stdout[-2000:]
    result = json.loads(unescape(report[1]))
    assert result["problems"] == []
    return result["seen"]
