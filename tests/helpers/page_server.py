"""A server in front of which a browser stands, and scripts that measure the page in it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

# The contrast of every text that shows with what lies behind it, the least first; any colour is one that canvas knows.
CONTRAST = """() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  const painted = (colours) => {
    brush.clearRect(0, 0, 1, 1);
    for (const colour of colours) { brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1); }
    return [...brush.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, holder = node.parentElement;
    if (!node.data.trim() || holder.closest("script, style, noscript, .unseen") || !holder.checkVisibility()) continue;
    const layers = [];
    for (let one = holder; one; one = one.parentElement) layers.unshift(getComputedStyle(one).backgroundColor);
    const behind = light(painted(layers)), ink = light(painted([...layers, getComputedStyle(holder).color]));
    const contrast = (Math.max(behind, ink) + 0.05) / (Math.min(behind, ink) + 0.05);
    found.push([contrast, node.data.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""


# What reaches beyond the right edge.
WIDE = """() => [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility()
  && !node.closest(".unseen") && node.getBoundingClientRect().right > innerWidth + 0.5).map((node) => node.outerHTML)"""


class Server:
    """`pixnar serve` in a process of its own."""

    def __init__(self, index: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "pixnar.cli", "serve", str(index), "--host", "127.0.0.1"]
        self._command += ["--port", str(self.port), "--wait-ms", "20000"]  # a busy machine is no reason to refuse
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/ready", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.stop()
        raise AssertionError(f"{' '.join(self._command)} did not become ready")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None
