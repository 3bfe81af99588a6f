"""A process that works on a table may be killed at any moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(how: str, folder: Path, *numbers: float) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.helpers.table_crashes", how, str(folder), *map(str, numbers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    done = run("random", tmp_path, 250, 1)
    assert done["kills"] == 250
    assert done["operations"] > 50  # or the children were killed before they did anything
    assert min(done["change"], done["compact"], done["build"], done["taken"], done["lost"]) > 0


@pytest.mark.slow
def test_killed_at_every_step(tmp_path: Path) -> None:
    done = run("steps", tmp_path)
    assert list(done) == ["change", "torn", "compact", "build anew", "build"]
    assert done["change"] >= 5
    assert done["torn"] > done["change"]
    assert min(done["compact"], done["build anew"], done["build"]) > 25


@pytest.mark.slow
def test_read_while_it_is_changed(tmp_path: Path) -> None:
    done = run("read", tmp_path, 6)
    assert done["opened"] > 50
    assert done["refreshed"] > 20
    assert done["states"] > 3
