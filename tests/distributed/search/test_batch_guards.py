"""Files of queries: what must not be joined, overwritten, removed or left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pixnar.base.errors import CorpusError, FileFormatError, PixnarError
from pixnar.corpus import Document
from pixnar.distributed.batch import BatchJob, BatchOptions, LocalWorkers, Piece, search_file
from pixnar.distributed.batch_ray import RayWorkers
from pixnar.distributed.cluster import RayExecutor
from pixnar.table import DocidTable
from tests.test_cli import fails, pixnar

OPTIONS = BatchOptions(k=5, batch=80)  # four pieces


class Meanwhile:
    """Workers during whose first piece something happens."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self.happens = happens

    def __call__(self, job: BatchJob, pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
        for done, made in enumerate(LocalWorkers(1)(job, pieces)):
            yield made
            if not done:
                self.happens()


def stop() -> None:
    raise KeyboardInterrupt


def begin(index: Path, queries: Path, out: Path, wish: BatchOptions = OPTIONS) -> Path:
    """Leave a run behind with one piece made; its work folder."""
    with pytest.raises(KeyboardInterrupt):
        search_file(index, queries, out, wish, workers=Meanwhile(stop))
    work = out.with_name(f"{out.name}.work")
    assert sorted(path.name for path in work.iterdir()) == ["lock", "piece-0000000.arrow", "plan.json", "queries.jsonl"]
    return work


@pytest.fixture
def own(home: Path, tmp_path: Path) -> Path:
    """An index that a test may change."""
    shutil.copytree(home / "index", tmp_path / "index")
    return tmp_path / "index"


def add(index: Path, doc_id: str) -> None:
    table = DocidTable.open(index / "docids")
    table.add(doc_id, ["balin demor"], Document(doc_id, "", "", {"country": "nowhere"}))


def write(path: Path, *ids: str) -> Path:
    path.write_text("".join(json.dumps({"_id": name, "text": "balin"}) + "\n" for name in ids))
    return path


def test_one_run_at_a_time(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    command = ("search-batch", home / "index", home / "queries.jsonl", "-o", out, "-k", "10", "--overwrite")
    second = Meanwhile(lambda: fails("is being changed by another process", *command))
    search_file(home / "index", home / "queries.jsonl", out, OPTIONS, workers=second)
    assert max(pq.read_table(out)["rank"].to_pylist()) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]


def test_pieces_of_other_settings_are_not_joined(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    run = home / "index", home / "queries.jsonl"
    other = begin(*run, tmp_path / "other.parquet", BatchOptions(k=6, batch=80))
    work = begin(*run, out)
    shutil.copy(other / "piece-0000000.arrow", work)
    with pytest.raises(FileFormatError, match=r"piece-0000000\.arrow was made with other settings: remove it"):
        search_file(*run, out, OPTIONS, threads=1)
    assert not out.exists()
    (work / "piece-0000000.arrow").unlink()
    assert search_file(*run, out, OPTIONS, threads=1) == 320


def test_an_index_that_changes_is_told(home: Path, own: Path, tmp_path: Path) -> None:
    out, queries = tmp_path / "run.parquet", home / "queries.jsonl"
    with pytest.raises(PixnarError, match=r"index was changed while it was searched: .*--overwrite"):
        search_file(own, queries, out, OPTIONS, workers=Meanwhile(lambda: add(own, "new")))
    assert not out.exists()
    with pytest.raises(
        PixnarError, match=r"run\.parquet\.work was begun with another index: use the same again, or pass --overw"
    ):
        search_file(own, queries, out, OPTIONS)
    assert search_file(own, queries, out, OPTIONS, threads=1, overwrite=True) == 320
    assert "new" in pq.read_table(out)["doc_id"].to_pylist()


@pytest.mark.timeout(180)
def test_a_worker_that_opens_a_changed_index_says_so(
    home: Path, own: Path, tmp_path: Path, ray_executor: RayExecutor
) -> None:
    """The worker that had the old state open dies; the one after it must not go on with the new."""
    seen: list[int] = []

    def watch(number: int, process: int) -> None:
        seen.append(number)
        if len(seen) == 1:
            add(own, "new")
            os.kill(process, signal.SIGKILL)

    wish = BatchOptions(k=5, batch=4)
    with pytest.raises(PixnarError, match="index was changed while it was searched"):
        search_file(own, home / "queries.jsonl", tmp_path / "run.parquet", wish, workers=RayWorkers(1, watch=watch))
    assert 0 < len(seen) < 80  # it was a worker who said so, and not the check when all is done
    assert not (tmp_path / "run.parquet").exists()


def test_another_release_starts_anew(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(home / "index", home / "queries.jsonl", tmp_path / "run.parquet")
    monkeypatch.setattr("pixnar.__version__", "0.0.1")
    with pytest.raises(PixnarError, match=r"run\.parquet\.work was begun with another pixnar"):
        search_file(home / "index", home / "queries.jsonl", tmp_path / "run.parquet", OPTIONS)


def test_files_of_others_are_left_alone(home: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.jsonl"
    shutil.copy(home / "queries.jsonl", queries)
    (tmp_path / "link.jsonl").symlink_to(queries)
    for name in ("queries.jsonl", "link.jsonl"):
        fails("holds the queries themselves", "search-batch", home / "index", queries, "-o", tmp_path / name)
        with pytest.raises(PixnarError, match="holds the queries themselves"):
            search_file(home / "index", queries, tmp_path / name, overwrite=True)
    assert queries.read_bytes() == (home / "queries.jsonl").read_bytes()
    notes = tmp_path / "notes.jsonl"
    notes.write_text("mine")
    with pytest.raises(PixnarError, match=r"notes\.jsonl exists: choose another name or say --overwrite"):
        search_file(home / "index", queries, notes)
    assert notes.read_text() == "mine"
    for name, path in (("a.jsonl", "a.jsonl.work/plan.json"), ("b.jsonl", "b.jsonl.work")):
        foreign = tmp_path / path
        foreign.parent.mkdir(exist_ok=True)
        foreign.write_text("mine")
        for overwrite in (False, True):
            with pytest.raises(PixnarError, match=rf"{name}\.work is needed for the work and holds something else"):
                search_file(home / "index", queries, tmp_path / name, overwrite=overwrite)
        assert foreign.read_text() == "mine"
    work = begin(home / "index", queries, tmp_path / "c.jsonl")
    (work / "notes.txt").write_text("mine")
    with pytest.raises(PixnarError, match="holds something else"):
        search_file(home / "index", queries, tmp_path / "c.jsonl", OPTIONS, overwrite=True)
    assert (work / "piece-0000000.arrow").exists()


def test_what_fails_at_once_leaves_nothing(home: Path, own: Path, tmp_path: Path) -> None:
    """So that the command can be given again, corrected."""
    queries, out = home / "queries.jsonl", tmp_path / "run.parquet"
    before = sorted(tmp_path.iterdir())
    for wish, message in (
        (BatchOptions(where="colour = 1"), "no document has the key 'colour'"),
        (BatchOptions(where="country ="), "filter 'country ='"),
        (BatchOptions(sources="stars"), "sources 'stars': choose one of"),
        (BatchOptions(batch=0), "pieces of 0 queries"),
    ):
        with pytest.raises(PixnarError, match=message):
            search_file(own, queries, out, wish)
        assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(KeyboardInterrupt):
        search_file(own, queries, out, OPTIONS, progress=lambda *_: stop())  # while queries are read
    assert sorted(tmp_path.iterdir()) == before
    search_file(own, queries, out, OPTIONS, threads=1)


@pytest.mark.timeout(180)
def test_an_error_of_a_ray_worker_is_one_line(home: Path, own: Path, tmp_path: Path) -> None:
    model = max((own / "encoder").glob("*.onnx"), key=lambda path: path.stat().st_size)
    model.write_bytes(bytes(model.stat().st_size))
    before = sorted(tmp_path.iterdir())
    out = tmp_path / "run.parquet"
    fails(model.name, "search-batch", own, home / "queries.jsonl", "-o", out, "--ray", "--workers", "1")
    assert sorted(tmp_path.iterdir()) == before


def test_a_damaged_plan_is_told_and_replaced(home: Path, tmp_path: Path) -> None:
    run = home / "index", home / "queries.jsonl", tmp_path / "run.parquet"
    for plan in ("{", '{"settings": {}}', "[]", '{"settings": {}, "ends": ["x"], "count": 1}'):
        work = begin(*run)
        (work / "plan.json").write_text(plan)
        with pytest.raises(FileFormatError, match=r"plan\.json is damaged .*: remove .*\.work, or say --overwrite"):
            search_file(*run, OPTIONS)
        search_file(*run, OPTIONS, threads=1, overwrite=True)
        assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]
        run[2].unlink()


def test_ids_of_queries_are_judged_first(home: Path, tmp_path: Path) -> None:
    for name, ids, message in (
        ("run.parquet", ("a", "b", "a"), r"q\.jsonl:3: duplicate query id 'a'; correct the row"),
        ("run.jsonl", ("a", "b\ud800"), r"q\.jsonl:2: no Unicode text: query id 'b\\ud800'; correct the row"),
        ("run.trec.gz", ("a b", "c"), r"q\.jsonl:1: blank, which a TREC run cannot hold, in query id 'a b'; correct"),
    ):
        queries = write(tmp_path / "q.jsonl", *ids)
        with pytest.raises(CorpusError, match=message):
            search_file(home / "index", queries, tmp_path / name, workers=Meanwhile(lambda: pytest.fail("searched")))
        assert [path.name for path in tmp_path.iterdir()] == ["q.jsonl"]
    queries = write(tmp_path / "q.jsonl", "a b", "c", "\ud800", "c")
    done = pixnar("search-batch", home / "index", queries, "-o", tmp_path / "run.trec", "--skip-bad-rows")
    assert done.returncode == 0, done
    assert "skipped 3 bad rows" in done.stderr
    assert {line.split()[0] for line in (tmp_path / "run.trec").read_text().splitlines()} == {"c"}
    assert search_file(home / "index", write(queries, "a b"), tmp_path / "run.parquet", threads=1) == 1


def test_ids_of_documents_are_judged_first(own: Path, tmp_path: Path) -> None:
    queries = write(tmp_path / "q.jsonl", "q1")
    add(own, "two words")
    with pytest.raises(PixnarError, match=r"document id 'two words' of .* cannot stand in a TREC run.*\.parquet"):
        search_file(own, queries, tmp_path / "run.trec", workers=Meanwhile(lambda: pytest.fail("searched")))
    assert search_file(own, queries, tmp_path / "run.parquet", threads=1) == 1
    others = BatchOptions(where='not country = "nowhere"')
    assert search_file(own, queries, tmp_path / "others.trec", others, threads=1) == 1
    DocidTable.open(own / "docids").remove("two words")
    assert search_file(own, queries, tmp_path / "run.trec", threads=1) == 1
