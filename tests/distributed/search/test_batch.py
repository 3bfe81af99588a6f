"""Files of queries: the same bytes however they are searched, whoever dies on the way."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pixnar.base.errors import CorpusError, PixnarError
from pixnar.distributed.batch import BatchJob, BatchOptions, LocalWorkers, Piece, search_file
from pixnar.distributed.batch_ray import RayWorkers, _BatchWorker
from pixnar.distributed.cluster import RayExecutor
from pixnar.evaluation.queries import read_run
from pixnar.index import Index
from tests.test_cli import fails

OPTIONS = BatchOptions(k=5, batch=16)


@pytest.fixture(scope="module")
def expected(home: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a run that nothing happens to writes."""
    out = tmp_path_factory.mktemp("batch") / "run.parquet"
    assert search_file(home / "index", home / "queries.jsonl", out, OPTIONS, threads=2) == 320
    assert [path.name for path in out.parent.iterdir()] == ["run.parquet"]
    return out.read_bytes()


def test_rows(home: Path, texts: list[str], expected: bytes, tmp_path: Path) -> None:
    """They are what the index finds, in the order of the queries; also as lines and as a run, packed or not."""
    (tmp_path / "run.parquet").write_bytes(expected)
    rows = pq.read_table(tmp_path / "run.parquet").to_pylist()
    index = Index.load(home / "index", threads=1)
    told = [
        {"query_id": f"q{i}", "rank": rank, **hit.facts()}
        for i, text in enumerate(texts)
        for rank, hit in enumerate(index.search(text, 5), 1)
    ]
    assert [{name: row[name] for name in told[0]} for row in rows] == told
    for name in ("run.jsonl", "run.jsonl.gz", "run.trec", "run.trec.gz"):
        search_file(home / "index", home / "queries.jsonl", tmp_path / name, OPTIONS, threads=1)
    lines = (tmp_path / "run.jsonl").read_text()
    assert [json.loads(line) for line in lines.splitlines()] == rows
    assert gzip.decompress((tmp_path / "run.jsonl.gz").read_bytes()).decode() == lines
    run = read_run(tmp_path / "run.trec.gz")
    assert run == read_run(tmp_path / "run.trec")
    assert [doc_id for doc_id, _ in run["q7"]] == [row["doc_id"] for row in rows if row["query_id"] == "q7"]


def test_spelling(home: Path, tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "balni demmor"}) + "\n")
    index = Index.load(home / "index", threads=1)
    for spelling in (True, False, None):
        out = tmp_path / f"{spelling}.jsonl"
        search_file(home / "index", tmp_path / "queries.jsonl", out, BatchOptions(k=5, spelling=spelling), threads=1)
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        found = index.search("balni demmor", 5, spelling=spelling)
        assert [(row["doc_id"], row["score"]) for row in rows] == [(hit.id, hit.score) for hit in found]


class Weak:
    """Workers that are gone after some pieces."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces

    def __call__(self, job: BatchJob, pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
        for done, made in enumerate(LocalWorkers(1)(job, pieces)):
            if done == self.pieces:
                raise KeyboardInterrupt
            yield made


def test_a_run_goes_on_where_it_stopped(home: Path, expected: bytes, tmp_path: Path) -> None:
    packed, out = tmp_path / "queries.jsonl.gz", tmp_path / "run.parquet"
    packed.write_bytes(gzip.compress((home / "queries.jsonl").read_bytes()))
    made = []
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            search_file(home / "index", packed, out, OPTIONS, workers=Weak(4))
        assert not out.exists()
        made.append(len(list((tmp_path / "run.parquet.work").glob("piece-*"))))
    assert made == [4, 8, 12]
    with pytest.raises(PixnarError, match=r"another k: .*--overwrite"):
        search_file(home / "index", packed, out, BatchOptions(k=6, batch=16))
    search_file(home / "index", packed, out, OPTIONS, workers=Weak(9))
    assert out.read_bytes() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["queries.jsonl.gz", "run.parquet"]


def test_a_killed_command_goes_on(home: Path, expected: bytes, tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    paths = [str(home / "index"), str(home / "queries.jsonl"), "-o", str(out)]
    command = [sys.executable, "-m", "pixnar.cli", "search-batch", *paths, "-k", "5", "--batch", "16", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list((tmp_path / "run.parquet.work").glob("piece-*1.arrow")):
        time.sleep(0.005)
    process.kill()
    process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert "320 queries" in done.stderr
    assert out.read_bytes() == expected


def test_errors(home: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"_id": "q1", "text": "balin"}\n{"_id": "q2"}\n{"_id": "q3", "text": "demor"}\n')
    out = tmp_path / "run.parquet"
    with pytest.raises(CorpusError, match=r"bad\.jsonl.*2"):
        search_file(home / "index", bad, out)
    assert search_file(home / "index", bad, out, skip_bad_rows=True, threads=1) == 2
    fails("no file", "search-batch", home / "index", tmp_path / "none.jsonl", "-o", tmp_path / "other.parquet")
    fails("does not say its format", "search-batch", home / "index", bad, "-o", tmp_path / "run.csv")
    fails("nothing without --ray", "search-batch", home / "index", bad, "-o", out, "--workers", "3")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert search_file(home / "index", empty, out, threads=1, overwrite=True) == 0
    assert pq.read_table(out).num_rows == 0


@pytest.mark.timeout(180)
def test_ray_workers_may_die(home: Path, expected: bytes, tmp_path: Path, ray_executor: RayExecutor) -> None:
    """Kill the worker that made a piece, while it makes another, again and again."""
    chance = random.Random(3)
    killed: list[int] = []

    def watch(number: int, process: int) -> None:
        if len(killed) < 3 and process not in killed and chance.random() < 0.5:
            os.kill(process, signal.SIGKILL)
            killed.append(process)

    out = tmp_path / "run.parquet"
    search_file(home / "index", home / "queries.jsonl", out, OPTIONS, workers=RayWorkers(2, watch=watch))
    assert out.read_bytes() == expected
    assert killed


@pytest.mark.timeout(180)
def test_four_workers_write_the_same(home: Path, expected: bytes, tmp_path: Path, ray_executor: RayExecutor) -> None:
    made: dict[int, int] = {}
    out = tmp_path / "run.parquet"
    search_file(home / "index", home / "queries.jsonl", out, OPTIONS, workers=RayWorkers(4, watch=made.__setitem__))
    assert out.read_bytes() == expected
    assert sorted(made) == list(range(20))
    assert len(set(made.values())) > 1


class Deadly(_BatchWorker):
    """A worker that opens the index and dies of its piece."""

    def made(self, piece: Piece) -> bytes:
        super().made(piece)
        os.kill(os.getpid(), signal.SIGKILL)
        return b""


@pytest.mark.timeout(180)
def test_a_piece_that_kills_every_worker_is_given_up(
    home: Path, tmp_path: Path, ray_executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pixnar.distributed.batch_ray.RETRIES", 1)
    monkeypatch.setattr("pixnar.distributed.batch_ray._BatchWorker", Deadly)
    with pytest.raises(PixnarError, match="2 workers died over the same job: give them more memory"):
        search_file(home / "index", home / "queries.jsonl", tmp_path / "run.parquet", workers=RayWorkers(1))
    assert not list(tmp_path.iterdir())
