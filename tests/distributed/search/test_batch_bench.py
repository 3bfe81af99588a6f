"""The benchmark of batch search, on a handful of queries."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from pixnar.benchmarks import ray_search

from pixnar.distributed.cluster import RayExecutor


@pytest.mark.timeout(180)
def test_it_measures_and_compares(home: Path, tmp_path: Path, ray_executor: RayExecutor) -> None:
    shutil.copy(home / "queries.jsonl", tmp_path)
    batch = ray_search.batches(home / "index", tmp_path, 320)
    assert batch["same_bytes"]
    for name in ("plain", "ray_1_worker", "ray_2_workers"):
        assert batch[name]["cpu_seconds"] > 0
    assert batch["ray_1_worker"]["cpu_seconds"] > batch["plain"]["cpu_seconds"]  # Ray's own processes count


@pytest.mark.parametrize("wrong", [None, "parts", "serve", "kills", "batch"])
def test_a_difference_is_an_error(home: Path, wrong: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, function, right, other in (
        ("parts", "cut", {"queries": 10, "identical": 10}, {"identical": 9}),
        ("serve", "serving", {"identical": True}, {"identical": False}),
        ("kills", "kills", {"runs": 2, "same_bytes": 2}, {"same_bytes": 1}),
        ("batch", "batches", {"same_bytes": True}, {"same_bytes": False}),
    ):
        told = right | (other if name == wrong else {})
        monkeypatch.setattr(ray_search, function, lambda *_, told=told: told)
    monkeypatch.setattr("sys.argv", ["ray_search", str(home / "index"), str(home / "corpus")])
    with pytest.raises(SystemExit, match=f"the plain way: {wrong}$") if wrong else contextlib.nullcontext():
        ray_search.main()
