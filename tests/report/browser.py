"""A page as a real browser shows it: headless Chromium, without any driver."""

import json
import re
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Runs in the page, after everything is laid out; what it found becomes a text in the document.
_PROBE = """
<script>
const errors = [];
window.addEventListener("error", event => errors.push(String(event.message)), true);
window.addEventListener("load", () => setTimeout(() => {
  const root = document.documentElement;
  const wide = [...document.querySelectorAll("body *")].filter(e => {
    if (e.closest(".box, figure.wide, pre, svg")) return false;
    return e.getBoundingClientRect().right > root.clientWidth + 0.5;
  }).map(e => e.tagName + "." + e.className);
  const style = getComputedStyle(document.body);
  const found = {
    client: root.clientWidth, scroll: root.scrollWidth, wide: wide,
    loaded: performance.getEntriesByType("resource").map(e => e.name),
    errors: errors,
    ink: style.color, paper: style.backgroundColor,
    texts: [...document.querySelectorAll("svg text")].map(t => getComputedStyle(t).fill),
    plots: [...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect().height),
  };
  parent.postMessage(JSON.stringify(found));
}, 50));
</script>
"""


def find_browser() -> str:
    """Return the program, or skip the test."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip("there is no Chromium here, which shows pages as their readers see them")


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder and keeps what was asked for."""

    def __init__(self, *arguments, asked, **more):
        self.asked = asked
        super().__init__(*arguments, **more)

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_):
        pass


def look_at(page: Path, folder: Path, width: int, dark: bool = False) -> dict:
    """Return what the page is like in a window of some width, and what the console said.

    The page is put into a frame of that width, because no window of a browser is as narrow as a
    telephone; the frame is what is measured. A server of our own sees what is loaded from beside
    the page, the browser's own list what is wanted from elsewhere.
    """
    folder.mkdir(exist_ok=True)
    inner = folder / "page.html"
    inner.write_text(page.read_text("utf-8").replace("</head>", _PROBE + "</head>"), "utf-8")
    outer = folder / "frame.html"
    frame = f'<iframe src="page.html" style="border:0;width:{width}px;height:2000px"></iframe>'
    outer.write_text(
        '<!doctype html><body style="margin:0">'
        '<pre id="probe"></pre><script>addEventListener("message", event => {'
        'document.getElementById("probe").textContent = event.data;});</script>' + frame,
        "utf-8",
    )
    command = [
        find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000",
        f"--window-size={max(width, 500)},2000", "--dump-dom",
    ]  # fmt: skip
    if dark:
        command.insert(2, "--blink-settings=preferredColorScheme=0")
    asked: list[str] = []
    handler = partial(_Handler, asked=asked, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        command.append(f"http://127.0.0.1:{server.server_address[1]}/frame.html")
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        server.shutdown()
    asked = [path for path in asked if path not in ("/frame.html", "/page.html", "/favicon.ico")]
    found = re.search(r'<pre id="probe">({.*?)</pre>', run.stdout, re.DOTALL)
    assert found is not None, run.stdout[-2000:] + run.stderr[-2000:]
    text = found[1].replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">")
    console = [
        line for line in run.stderr.splitlines() if "CONSOLE" in line and "favicon" not in line
    ]
    seen = json.loads(text.replace("&amp;", "&"))
    return {**seen, "loaded": [*seen["loaded"], *asked], "console": console}
