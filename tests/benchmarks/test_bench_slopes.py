"""The benchmark of growth measures every stage, and its laws are those of what it measured."""

from __future__ import annotations

import json
from pathlib import Path

from pixnar.benchmarks import slopes


def test_every_stage_is_measured_at_every_size(tmp_path: Path) -> None:
    out, plot = tmp_path / "out.json", tmp_path / "out.png"
    slopes.run([2000, 8000], [600, 900], [100, 400], size=2000, repeats=1, json_file=out, plot=plot)
    told = json.loads(out.read_bytes())
    sizes = {
        stage: [cell[grown] for cell in told["cells"] if cell["stage"] == stage]
        for stage, grown in slopes.GROWING.items()
    }
    assert sizes == {"vocabulary": [2000, 8000], "selection": [600, 900], "table": [2000, 8000], "lexical": [100, 400]}
    assert 0.3 < told["slopes"]["table"]["disk_mb"]["exponent"] < 1.1  # more docids, more bytes, and no more than that
    assert plot.read_bytes().startswith(b"\x89PNG")
