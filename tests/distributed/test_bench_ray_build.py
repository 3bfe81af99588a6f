"""The benchmark of builds by Ray, on a handful of docids."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pixnar.benchmarks import ray_build
from pixnar.benchmarks.ray_build import own_mb

from pixnar.base.errors import PixnarError
from pixnar.distributed.cluster import RayExecutor


def test_it_measures_compares_and_kills(
    ray_executor: RayExecutor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = ray_build.run(2000, size=1024, workers=(2,), kills=1, repeats=1, json_file=tmp_path / "r.json")
    assert [(way.name, way.workers, way.kills) for way in ways] == [
        ("plain", 0, 0),
        ("ray, 2", 2, 0),
        ("ray, 2, killed", 2, 1),
    ]
    assert all(way.same_bytes for way in ways)
    assert all((way.vocabulary_cpu or 0) > 0 and (way.table_cpu or 0) > 0 for way in ways[:2])
    assert ways[2].vocabulary_cpu is None
    assert [way.worker_mb > 20 for way in ways] == [False, True, True]  # Python and what it imports, at least
    assert own_mb(os.getpid()) > 50 > own_mb(2**22 + 1) == 0.0
    assert sum(ways[2].killed_during.values()) == 1
    stored = json.loads((tmp_path / "r.json").read_text())
    assert [way["name"] for way in stored["ways"]] == [way.name for way in ways]
    assert capsys.readouterr().out.count("same") == 3


def test_another_byte_is_an_error(ray_executor: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixnar.distributed.table.build_table", lambda corpus, made, path, *_: path.mkdir())
    with pytest.raises(PixnarError, match=r"ray, 1: .*docids-000001\.pixnar.* differ from what the plain path makes"):
        ray_build.run(500, size=600, workers=(1,), kills=0, repeats=1)
