"""A page as a real browser shows it: headless Chromium, without any driver."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Runs in the page, after everything is laid out; what it found becomes a text in the document.
_PROBE = """
<script>
window.addEventListener("error", event => { (window.tmErrors ||= []).push(String(event.message)); }, true);
window.addEventListener("load", () => requestAnimationFrame(() => {
  const root = document.documentElement;
  const wide = [...document.querySelectorAll("body *")].filter(e => {
    if (e.closest(".box, figure.wide, pre, svg")) return false;
    return e.getBoundingClientRect().right > root.clientWidth + 0.5;
  }).map(e => e.tagName + "." + e.className);
  const style = getComputedStyle(document.body);
  const found = {
    client: root.clientWidth, scroll: root.scrollWidth, wide: wide,
    loaded: performance.getEntriesByType("resource").map(e => e.name),
    errors: window.tmErrors || [],
    ink: style.color, paper: style.backgroundColor,
    texts: [...document.querySelectorAll("svg text")].map(t => getComputedStyle(t).fill),
    plots: [...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect().height),
  };
  const note = document.createElement("pre");
  note.id = "tm-probe";
  note.textContent = JSON.stringify(found);
  document.body.append(note);
}));
</script>
"""


def find_browser() -> str:
    """Return the program, or skip the test."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip("there is no Chromium here, which shows pages as their readers see them")


def look_at(page: Path, folder: Path, width: int, dark: bool = False) -> dict:
    """Return what the page is like in a window of some width, and what the console said.

    The page is put into a frame of that width, because no window of a browser is as narrow as a
    telephone; the frame is what is measured.
    """
    folder.mkdir(exist_ok=True)
    inner = folder / "page.html"
    inner.write_text(page.read_text("utf-8").replace("</head>", _PROBE + "</head>"), "utf-8")
    outer = folder / "frame.html"
    outer.write_text(
        '<!doctype html><body style="margin:0">'
        f'<iframe src="page.html" style="border:0;width:{width}px;height:2000px"></iframe>'
        '<script>addEventListener("load", () => setTimeout(() => {'
        'const d = document.querySelector("iframe").contentDocument;'
        'document.body.append(d.getElementById("tm-probe"));}, 300));</script>',
        "utf-8",
    )
    command = [
        find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--allow-file-access-from-files", "--enable-logging=stderr", "--v=0",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000",
        f"--window-size={max(width, 500)},2000", "--dump-dom", outer.as_uri(),
    ]  # fmt: skip
    if dark:
        command.insert(2, "--blink-settings=preferredColorScheme=0")
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="tm-probe">(.*?)</pre>', run.stdout, re.DOTALL)
    assert found is not None, run.stdout[-2000:] + run.stderr[-2000:]
    text = found[1].replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">")
    console = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    return {**json.loads(text.replace("&amp;", "&")), "console": console}
