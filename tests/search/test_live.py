"""Changes to the docids of an index count in every source, at once, for good, and for nobody else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pixnar.base.errors import FileFormatError
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL, TEXT, Fusion
from pixnar.index import Hit, Index
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from pixnar.search.live import Encode, Floats, Live, LiveSources
from pixnar.table import build_table
from pixnar.table.journal import Difference
from pixnar.table.snapshot import Snapshot
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder

SOURCES = (DOCIDS, LEXICAL, EXPANSION, DENSE)
DOCUMENTS = 20
ADDED, QUERY = "balin okapi stapol", "okapi stapol balin"  # the query is not the docid, which would put it first anyway
KILLED = """
import os, signal, sys
from pixnar.table import DocidTable
table = DocidTable.open(sys.argv[1])
table.add("d03", [sys.argv[2]])
table.add("new", [sys.argv[2]])
table.compact()
table.remove("d04")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    write_small(folder / "corpus", DOCUMENTS, 3)
    encoder = save_encoder(folder / "encoder", texts=[*WORDS, "okapi"])
    wish = settings(encoder, train__steps=1, scoring__tune=False)
    fit(folder / "corpus", folder / "index", override(Recipe(), wish), cache=folder / "cache", threads=1)
    return folder / "index"


def opened(home: Path, folder: Path, *sources: str) -> Index:
    """A copy of the index in which these sources count alike."""
    if not (folder / "index").exists():
        shutil.copytree(home, folder / "index")
    path = folder / "index" / "manifest.json"
    content = json.loads(path.read_text())
    content["fusion"] = Fusion(dict.fromkeys(sources, 1.0), dict.fromkeys(sources, 1.0)).to_dict()
    path.write_text(json.dumps(content))
    return Index.load(folder / "index")


def column(index: Index, source: str) -> dict[str, float]:
    query = index.queries([QUERY])[0]
    found = index.ranker.candidates(query, index.ranker.scored(query), 100)
    return dict(zip(found.doc_ids, found.columns[source].tolist(), strict=True))


@pytest.mark.parametrize("source", SOURCES)
def test_an_added_docid_counts_at_once_and_for_its_documents_only(home: Path, tmp_path: Path, source: str) -> None:
    index = opened(home, tmp_path, DOCIDS, source)
    before = column(index, source)
    assert len(before) == DOCUMENTS
    index.table.add("d03", [ADDED])
    index.table.add("new", [ADDED])
    after = column(index, source)
    assert after.keys() == before.keys() | {"new"}
    if source == EXPANSION:  # what the model expects may not be in the docid, which makes the document longer
        assert after["d03"] != before["d03"]
    else:
        assert after["d03"] > before["d03"]
    if source == LEXICAL:
        assert after["new"] > after["d03"]  # which says other things, too
    others = before.keys() - {"d03"}
    assert {doc_id: after[doc_id] for doc_id in others} == {doc_id: before[doc_id] for doc_id in others}
    index.table.change(remove_docids=[index.table.encode(ADDED)])
    assert column(index, source) == before


@pytest.mark.parametrize("source", [LEXICAL, DENSE])
def test_a_removed_docid_stops_counting(home: Path, tmp_path: Path, source: str) -> None:
    index = opened(home, tmp_path, DOCIDS, source)
    tokens, text = next(
        (tokens, index.table.spellings([tokens])[0])
        for tokens, named in index.table
        if named == ["d03"] and len(tokens) > 1
    )
    query = index.queries([" ".join(reversed(text.split()))])[0]

    def value() -> float:
        found = index.ranker.candidates(query, index.ranker.scored(query), 100)
        return float(found.columns[source][found.doc_ids.index("d03")])

    before = value()
    index.table.change(remove_pairs=[("d03", tokens)])
    assert value() < before
    index.table.add("d03", [text])
    assert value() == before


def answers(index: Index) -> list[list[Hit]]:
    return index.search_batch([QUERY, "rovek balin", "stapol", "title 3"], k=100)


def test_reopening_and_compacting_change_no_bit(home: Path, tmp_path: Path) -> None:
    index = opened(home, tmp_path, *SOURCES, TEXT)
    index.table.add("d03", [ADDED, "unheard of"])
    index.table.add("new", [ADDED, "Stapol"])
    index.table.remove("d05")
    index.table.remove("d06")
    index.table.add("d06", ["balin again"])
    expected = answers(index)
    assert {hit.id for hit in expected[0][:2]} == {"new", "d03"}
    assert "d05" not in {hit.id for hit in expected[1]}
    assert answers(Index.load(tmp_path / "index")) == expected
    index.table.compact()
    assert answers(index) == expected
    again = Index.load(tmp_path / "index")
    assert again.verify() > 8
    assert answers(again) == expected
    index.table.add("new", ["okapi again"])
    again.table.refresh()
    assert answers(again) == answers(index) != expected
    index.table.change(remove_documents=["new"], remove_docids=[index.table.encode(ADDED)])
    index.table.compact()
    index.table.add("new", [ADDED, "Stapol"])
    index.table.add("d03", [ADDED])
    assert answers(index) == expected


@pytest.mark.parametrize("nearest", [True, False])
def test_a_document_that_came_and_went_leaves_nothing(home: Path, tmp_path: Path, nearest: bool) -> None:
    index = opened(home, tmp_path, *SOURCES, TEXT)
    index.ranker.nearest = nearest
    before = answers(index)
    index.table.add("new", [ADDED])
    assert answers(index) != before
    index.table.compact()
    index.table.remove("new")
    assert answers(index) == before


class Gate:
    """An encoder of added docids that waits until it may go on."""

    def __init__(self, encode: Encode | None) -> None:
        assert encode is not None
        self._encode, self.asked, self.open = encode, threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def __call__(self, texts: Sequence[str]) -> Floats:
        self.sizes.append(len(texts))
        self.asked.set()
        assert self.open.wait(30)
        return self._encode(texts)


@pytest.mark.parametrize("changed_before", [False, True])
def test_searches_do_not_wait_for_a_change(home: Path, tmp_path: Path, changed_before: bool) -> None:
    index = opened(home, tmp_path, *SOURCES)
    if changed_before:
        index.table.add("d03", ["balin okapi"])
    before, documents = answers(index), index.table.documents
    index.ranker._live = None
    gate = index.ranker.encode = Gate(index.ranker.encode)
    many = [(f"new{i}", index.table.encode(f"{ADDED} {i}")) for i in range(130)]
    spellings = [f"{ADDED} {i}" for i in range(130)]
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(index.table.change, add=many, spellings=spellings, remove_documents=["d05"])
        assert gate.asked.wait(30)
        assert answers(index) == before  # nothing of the change, and without waiting
        assert index.table.documents == documents
        assert index.table.named(many[0][1]) == []
        assert not change.done()
        with ThreadPoolExecutor(1) as other:  # files are not locked: other processes may write
            elsewhere = Index.load(tmp_path / "index").table
            other.submit(elsewhere.add, "elsewhere", [ADDED]).result(30)
        gate.open.set()
        change.result(30)
    assert gate.sizes == [64, 64, 2 + changed_before]
    after = answers(index)
    assert {hit.id for hit in after[0][:5]} <= {doc_id for doc_id, _ in many}
    assert all(hit.id != "d05" for hits in after for hit in hits)
    assert index.table.refresh()
    assert "elsewhere" in {hit.id for hit in index.search(QUERY, k=200)}
    assert answers(index) == answers(Index.load(tmp_path / "index"))


def test_sources_of_two_states_are_kept(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Difference] = []
    after = LiveSources.after

    def counted(live: LiveSources, snapshot: Snapshot) -> Live:
        made.append(snapshot.difference)
        return after(live, snapshot)

    monkeypatch.setattr(LiveSources, "after", counted)
    index = opened(home, tmp_path, *SOURCES)
    index.table.add("d03", [ADDED])
    old = index.table.snapshot()
    index.table.add("new", [ADDED])
    new = index.table.snapshot()
    assert made == [old.difference, new.difference]
    first, second = index.ranker.live(old), index.ranker.live(new)
    assert (index.ranker.live(old), index.ranker.live(new)) == (first, second)
    index.table.compact()
    assert index.table.snapshot().difference is not new.difference
    assert index.ranker.live(index.table.snapshot()) is second
    answers(index)
    assert len(made) == 2


def test_a_change_that_cannot_be_prepared_is_made(home: Path, tmp_path: Path) -> None:
    index = opened(home, tmp_path, *SOURCES)

    def broken(texts: Sequence[str]) -> Floats:
        raise OSError("no memory")

    index.ranker.encode = broken
    with pytest.raises(OSError, match="no memory"):
        index.table.add("new", [ADDED])
    assert index.table.named(index.table.encode(ADDED)) == ["new"]
    assert "new" in {hit.id for hit in Index.load(tmp_path / "index").search(QUERY)}


def test_a_process_that_is_killed_leaves_every_source_whole(home: Path, tmp_path: Path) -> None:
    expected = opened(home, tmp_path, *SOURCES)
    shutil.copytree(tmp_path / "index", tmp_path / "killed")
    expected.table.change(add=[(doc_id, expected.table.encode(ADDED)) for doc_id in ("d03", "new")])
    expected.table.remove("d04")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "killed" / "docids", ADDED], env=environment, check=False
    )
    assert done.returncode == -signal.SIGKILL
    found, same = answers(Index.load(tmp_path / "killed")), answers(expected)
    assert [[hit[:2] for hit in hits] for hits in found] == [[hit[:2] for hit in hits] for hits in same]


def test_what_is_said_of_an_added_document_adds_up(home: Path, tmp_path: Path) -> None:
    index = opened(home, tmp_path, *SOURCES)
    index.table.add("new", [ADDED])
    index.table.compact()
    told = next(hit for hit in index.explain(QUERY, k=3)["hits"] if hit["doc_id"] == "new")
    assert told["placed"] is None
    assert set(told["sources"]) == set(SOURCES)
    total = np.float32(0)
    for part in told["parts"]:
        assert part["known"]
        total += np.float32(part["score"])
    assert total == told["score"]


def test_a_table_that_was_built_again_with_other_documents_is_refused(home: Path, tmp_path: Path) -> None:

    index = opened(home, tmp_path, *SOURCES)
    write_small(tmp_path / "other", DOCUMENTS + 5, 3)
    build_table(tmp_path / "other", index.table.vocabulary, tmp_path / "index" / "docids", overwrite=True)
    with pytest.raises(FileFormatError, match="fit again"):
        Index.load(tmp_path / "index").search(QUERY)
