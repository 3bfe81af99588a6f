"""A table does what plain dictionaries would do: built, changed, compacted, opened again, seen by another process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pixnar.base.errors import CorpusError, PixnarError
from pixnar.corpus import DocidRow, Document, write_corpus
from pixnar.search import Decoder, SlotScores
from pixnar.table import DocidTable, build_table, folder
from pixnar.vocab import Vocabulary
from tests.helpers.tables import (
    DOCUMENTS,
    PAIRS,
    TEXTS,
    Model,
    content,
    passing,
    small_table,
    tokens_of,
    vocabulary,
    write_small_corpus,
)

IDS = ("d1", "d2", "d3", "é4", "d", "new", "～", "😀", "a b")
KNOWN = [document.doc_id for document in DOCUMENTS]


def test_a_table_holds_what_its_corpus_says(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    assert content(table, IDS) == Model().content
    assert content(DocidTable.open(tmp_path / "table"), IDS) == Model().content
    assert content(DocidTable.check(tmp_path / "table"), IDS) == Model().content
    assert table.spelling(tokens_of("flights TO rome")) == "flights to rome"
    assert table.document("d2") == DOCUMENTS[1]
    assert sum(count for _, count in table.lengths) == len(Model().docids)
    assert (table.pairs, table.documents, table.changes) == (8, 4, (0, 0))
    assert table.meta == {"corpus": str(tmp_path / "corpus")}
    assert isinstance(table.vocabulary, Vocabulary)
    assert table.encode("cheap Hotels") == tokens_of("cheap hotels")
    assert table.path == tmp_path / "table"


def test_the_same_corpus_gives_the_same_bytes(tmp_path: Path) -> None:
    small_table(tmp_path)
    os.rename(tmp_path / "table", tmp_path / "first")
    small_table(tmp_path)
    for name in sorted(os.listdir(tmp_path / "first")):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "table" / name).read_bytes(), name
    assert sorted(os.listdir(tmp_path / "first")) == sorted(os.listdir(tmp_path / "table"))


def test_docids_come_once_and_in_order(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    table.change(add=[("d3", tokens_of("Rome")), ("new", tokens_of("cheap hotels")), ("new", tokens_of("a"))])
    docids = [tokens for tokens, _ in table]
    assert docids == sorted(set(docids), key=lambda tokens: (len(tokens), tokens))
    assert table.named(tokens_of("rome")) == ["d1", "d2", "d3"]
    assert table.named(tokens_of("cheap hotels")) == ["d2", "new"]
    assert table.named(()) == table.named((10**12,)) == []


def test_what_comes_back_is_new(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    rome = tokens_of("rome")
    assert table.spelling(rome) == "Rome"
    table.change(remove_docids=[rome])
    assert table.spelling(rome) is None
    table.add("d2", ["ROME"])  # the pair of old, with a new spelling
    table.add("d1", ["rOmE"])
    for _ in range(2):
        assert table.spelling(rome) == "ROME"
        assert table.named(rome) == ["d1", "d2"]
        table.compact(threads=1)
    table.remove("d1")
    with pytest.raises(PixnarError, match="no document 'd1' in"):
        table.document("d1")
    table.add("d1", ["night train"])
    for _ in range(2):
        assert table.document("d1") == Document("d1", "", "", {})
        assert table.named(tokens_of("night train")) == ["d1", "d3", "é4"]
        table.compact(threads=1)


def test_a_document_is_described_anew_and_removed(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    table.change(documents=[Document("d1", "New", "this text is not kept", {"colour": ("red", "blue")})])
    assert table.document("d1") == Document("d1", "New", "", {"colour": ["red", "blue"]})
    assert passing(table, 'colour = "blue"', KNOWN) == {"d1"}
    assert passing(table, 'country = "it"', KNOWN) == {"d2"}
    table.remove("d1")
    assert passing(table, 'country = "it"', KNOWN) == {"d2"}
    table.compact(threads=1)
    assert "d1" not in {doc_id for _, named in table for doc_id in named}
    with pytest.raises(PixnarError, match="no document has the key 'colour'"):
        table.snapshot().allowed(where='colour = "blue"')


def test_filters_know_the_keys_of_new_documents_and_no_others(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    with pytest.raises(PixnarError, match="no document has the key 'colour'"):
        table.snapshot().allowed(where='colour = "red"')
    table.add("new", ["Rome"], Document("new", "", "", {"colour": "red", "country": "it"}))
    ids = [*KNOWN, "new"]
    assert passing(table, 'colour = "red"', ids) == {"new"}
    assert passing(table, 'country = "it"', ids) == {"d1", "d2", "new"}
    assert passing(table, "missing colour", ids) == set(KNOWN)
    with pytest.raises(PixnarError, match="no document has the key 'contry'"):
        table.snapshot().allowed(where='colour = "red" or contry = "it"')


def test_without_spellings_none_are_kept(tmp_path: Path) -> None:
    table = small_table(tmp_path, spellings=False)
    table.add("d3", ["City Break"])
    for _ in range(2):
        assert table.spelling(tokens_of("city break")) is None
        assert table.spelling(tokens_of("rome")) is None
        table.compact(threads=1)
    assert not (tmp_path / "table" / "spellings-000002.pixnar").exists()


def test_without_an_index_documents_cannot_be_removed(tmp_path: Path) -> None:
    table = small_table(tmp_path, index=False)
    before = content(table, IDS)
    with pytest.raises(PixnarError, match=r"without its index.*build it again with the index"):
        table.change(add=[("d1", tokens_of("a"))], remove_documents=["d1"])
    assert content(table, IDS) == content(DocidTable.check(tmp_path / "table"), IDS) == before
    table.add("new", ["city break", "Rome"])
    table.remove("new")  # it is not in what was built
    table.remove("nobody")
    table.change(remove_docids=[tokens_of("rome")], remove_pairs=[("d1", tokens_of("flights to rome"))])
    table.compact(threads=1)
    model = Model()
    model.change(remove_docids=[tokens_of("rome")], remove_pairs=[("d1", tokens_of("flights to rome"))])
    assert content(table, IDS) == model.content
    assert not table.indexed


def test_wrong_changes_change_nothing(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    good = ("d1", tokens_of("a"))
    wrong: dict[str, Any]
    for wrong in (
        {"add": [good, ("d1", ())]},
        {"add": [good, ("d1", (len(vocabulary()),))]},
        {"add": [good, ("d1", (-1,))]},
        {"add": [good, ("d1", (5,) * 65_537)]},
        {"add": [good], "spellings": ["a", "b"]},
        {"add": [good], "documents": [Document("d1", cast(Any, None), "", {})]},
        {"add": [(1, good[1])]},
    ):
        with pytest.raises(ValueError, match=r"should|spellings|text"):
            table.change(**wrong)
    for wrong in (
        {"add": [good], "documents": [Document("d1", "", "", {"x": {1, 2}})]},
        {"add": [good, ("", good[1])]},
    ):
        with pytest.raises(PixnarError, match=r"metadata|empty"):
            table.change(**wrong)
    with pytest.raises(PixnarError, match="has no text"):
        table.add("d1", ["fine", " \t "])
    with pytest.raises(ValueError, match="is to describe"):
        table.add("d1", [], Document("d2", "", "", {}))
    assert content(DocidTable.check(tmp_path / "table"), IDS) == content(table, IDS) == Model().content
    table.add("d1", ["x " * 40_000])  # long, and allowed
    table.compact(threads=1)
    assert table.lengths[-1].docids == 1


def test_a_table_in_memory_has_no_vocabulary() -> None:
    table = DocidTable.in_memory({(1,): ["d1"]}, vocab_size=3)
    with pytest.raises(PixnarError, match="has no vocabulary"):
        table.encode("tea")
    assert (table.path, table.meta, table.refresh()) == (None, {}, False)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "PATIENCE", 0.05)


@pytest.mark.usefixtures("impatient")
def test_only_one_process_changes_a_table_at_a_time(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    with open(tmp_path / "table" / "lock", "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for change in (lambda: table.add("d1", ["a"]), table.compact, lambda: small_table(tmp_path, overwrite=True)):
            with pytest.raises(PixnarError, match="is being changed by another process: try again"):
                change()
        assert content(DocidTable.open(tmp_path / "table"), IDS) == Model().content  # readers need no lock
    table.add("d1", ["a"])
    assert table.named(tokens_of("a")) == ["d1"]


def test_a_short_wait_is_no_error(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    with open(tmp_path / "table" / "lock", "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        timer = threading.Timer(0.2, lambda: fcntl.flock(held, fcntl.LOCK_UN))
        timer.start()
        table.add("d1", ["a"])
        timer.join()
    assert table.named(tokens_of("a")) == ["d1"]


def test_a_reader_keeps_a_table_that_was_compacted_or_built_anew(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    early, late = DocidTable.open(tmp_path / "table"), DocidTable.open(tmp_path / "table")
    table.add("new", ["city break"])
    table.compact(threads=1)
    assert content(early, IDS) == Model().content
    assert early.refresh()
    assert content(early, IDS) == content(table, IDS)
    write_small_corpus(tmp_path / "corpus", [("d1", "Rome")])
    small_table(tmp_path, overwrite=True)
    assert content(late, IDS) == Model().content
    for each in (early, late, table):
        assert each.refresh()
        assert content(each, IDS) == Model([("d1", "Rome")]).content
        assert each.encode("rome") == tokens_of("rome")  # also where the vocabulary was not read before


def test_a_table_built_anew_with_another_vocabulary_is_not_mixed_up(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    silent = DocidTable.open(tmp_path / "table")
    table.encode("rome")
    other = Vocabulary.build(["a rose", "is a rose"], 600, min_count=1, threads=1)
    build_table(tmp_path / "corpus", other, tmp_path / "table", overwrite=True, threads=1)
    for act in (table.refresh, lambda: table.add("d1", ["a rose"]), silent.refresh, lambda: silent.vocabulary):
        with pytest.raises(PixnarError, match="built again with another vocabulary: open it again"):
            act()
    assert content(table, IDS) == Model().content
    assert DocidTable.open(tmp_path / "table").changes == (0, 0)


def test_a_table_is_deleted_and_built_again_under_a_reader(tmp_path: Path) -> None:
    reader = small_table(tmp_path)
    reader.add("d1", ["a"])
    shutil.rmtree(tmp_path / "table")
    with pytest.raises(PixnarError, match="does not exist"):
        reader.refresh()
    again = small_table(tmp_path)
    again.add("d2", ["a"])  # the same files but for this change, which is as long
    assert reader.refresh()
    assert reader.named(tokens_of("a")) == ["d2"]


def test_searches_do_not_wait_for_a_compaction(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    table.add("new", ["city break"])
    seen = []

    def look(stage: str, done: int, total: int) -> None:
        thread = threading.Thread(target=lambda: seen.append((len(list(table)), table.pairs, stage)))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()

    table.compact(threads=1, progress=look)
    assert {(docids, pairs) for docids, pairs, _ in seen} == {(len(Model().docids) + 1, 9)}


def test_a_snapshot_stays_as_it_is(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    table.change(remove_docids=[tokens_of("rome")], add=[("new", tokens_of("a"))])
    before = table.snapshot()
    docids = list(before)
    table.change(remove_documents=["d1", "new"], remove_docids=[tokens_of("night train")])
    table.change(add=[("d1", tokens_of("rome"))])
    table.compact(threads=1)
    assert list(before) == docids
    assert before.version < table.snapshot().version
    assert table.snapshot() is table.snapshot()


def test_hits_are_those_of_the_moment_of_the_search(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    size = len(vocabulary())
    scores = SlotScores.sparse([(range(size), np.zeros(size, np.float32))] * 4, ends=[0.0] * 4)
    found = Decoder(table, slots=4).documents(scores, 9)
    table.remove("d1")
    table.compact(threads=1)
    assert [hit.doc_id for hit in found.hits] == ["d1", "d2", "d3", "é4"]


def test_many_threads_search_while_one_changes(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    size = len(vocabulary())
    scores = SlotScores.sparse([(range(size), np.zeros(size, np.float32))] * 4, ends=[0.0] * 4)
    decoder = Decoder(table, slots=4, threads=1)
    stop = threading.Event()
    searches: list[int] = []
    wrong: list[object] = []

    def search() -> None:
        done = 0
        try:
            while not stop.is_set():
                hits = decoder.documents(scores, 100, where='country = "it" or `only new` = 1').hits
                ids = {hit.doc_id for hit in hits}
                if not {"d1", "d2"} <= ids or "d3" in ids or not all(i[0] == "n" for i in ids - {"d1", "d2"}):
                    wrong.append(ids)
                done += 1
        except Exception as error:
            wrong.append(error)
        searches.append(done)

    threads = [threading.Thread(target=search) for _ in range(3)]
    table.add("n", ["a"], Document("n", "", "", {"only new": 1}))
    for thread in threads:
        thread.start()
    for i in range(120):
        new = Document(f"n{i % 40}", "", "", {"only new": 1})
        table.change(add=[(new.doc_id, tokens_of(TEXTS[i % 12]))], documents=[new], remove_documents=[f"n{i % 7}"])
        if i % 10 == 9:
            table.compact(threads=1)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    assert min(searches) > 5


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write anywhere: be somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_table_that_may_not_be_written_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "table")
        small_table(Path(name)).add("d1", ["a"])
        expected = Model([*PAIRS, ("d1", "a")]).content
        os.chmod(name, 0o755)
        for file in os.listdir(path):
            os.chmod(path / file, 0o444)
        os.chmod(path, 0o555)
        with unprivileged():
            reader = DocidTable.open(path)
            assert content(reader, IDS) == content(DocidTable.check(path), IDS) == expected
            assert not reader.refresh()
            for change in (partial(reader.add, "d1", ["b"]), partial(reader.compact)):
                with pytest.raises(PixnarError, match=r"cannot change .*: Permission denied; see who may write"):
                    change()
        for mode in (0o000, 0o444):  # not even to be read, or only its list of files
            os.chmod(path, mode)
            with unprivileged(), pytest.raises(PixnarError, match=r"cannot open .*: Permission denied"):
                DocidTable.open(path)
        os.chmod(path, 0o755)
        os.chmod(path / "documents-000001.pixnar", 0)
        with unprivileged(), pytest.raises(PixnarError, match=r"cannot open .*documents.*: Permission denied"):
            DocidTable.open(path)


def full_disk(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that may write files of at most 20,000 bytes; beyond, a write fails as on a full disk."""
    program = (
        "import resource, signal, sys\n"
        "from pixnar.table import DocidTable\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from pixnar.base.errors import PixnarError\n"
        f"{arguments[0]}\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))\n"
        f"try:\n    {arguments[1]}\nexcept PixnarError as error:\n    print(error)\n"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)


def test_a_full_disk_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    small_table(tmp_path)
    opened = "table = DocidTable.open('table')"
    done = full_disk(tmp_path, opened, "table.change(add=[('d1', [v]) for v in range(500)] * 10)")
    assert "cannot write" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1
    assert content(DocidTable.check(tmp_path / "table"), IDS) == Model().content
    table = DocidTable.open(tmp_path / "table")
    for i in range(3000):
        table.change(add=[(f"n{i}", tokens_of("a"))]) if i % 100 == 0 else None
    names = [f"n{i:04}-{os.urandom(20).hex()}" for i in range(3000)]
    table.change(add=[(name, tokens_of("a")) for name in names])
    before = set(os.listdir(tmp_path / "table"))
    done = full_disk(tmp_path, opened, "table.compact(threads=1)")
    assert "cannot write" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1
    assert set(os.listdir(tmp_path / "table")) == before
    assert list(DocidTable.check(tmp_path / "table")) == list(table)


def test_a_build_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    corpus = write_small_corpus(tmp_path / "corpus")
    good = (corpus / "docids.jsonl").read_text()
    (corpus / "docids.jsonl").write_text(good + '{"_id": "nobody", "docid": "x"}\n')
    with pytest.raises(CorpusError, match="unknown document id 'nobody'"):
        small_table(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["corpus"]
    (corpus / "docids.jsonl").write_text(good)
    small_table(tmp_path).add("new", ["city break"])
    before = sorted(os.listdir(tmp_path / "table"))
    (corpus / "docids.jsonl").write_text(good + "not JSON\n")
    with pytest.raises(CorpusError, match="not valid JSON"):
        small_table(tmp_path, overwrite=True)
    assert sorted(os.listdir(tmp_path / "table")) == before
    assert content(DocidTable.check(tmp_path / "table"), IDS) == Model([*PAIRS, ("new", "city break")]).content


def test_nothing_of_yours_is_overwritten(tmp_path: Path) -> None:
    small_table(tmp_path)
    with pytest.raises(PixnarError, match="exists: choose another name or say --overwrite"):
        small_table(tmp_path)
    mine = tmp_path / "mine"
    mine.mkdir()
    build_table(tmp_path / "corpus", vocabulary(), mine, threads=1)  # an empty folder is free
    shutil.rmtree(mine)
    mine.mkdir()
    (mine / "thesis.txt").write_text("x")
    for target in (mine, mine / "thesis.txt"):
        with pytest.raises(PixnarError, match="exists and is no docid table"):
            build_table(tmp_path / "corpus", vocabulary(), target, overwrite=True, threads=1)
    with pytest.raises(PixnarError, match="does not exist; create it first"):
        build_table(tmp_path / "corpus", vocabulary(), tmp_path / "no" / "table", threads=1)
    (tmp_path / "table" / "notes.txt").write_text("mine")
    small_table(tmp_path, overwrite=True).add("new", ["a"])
    DocidTable.open(tmp_path / "table").compact(threads=1)
    assert (tmp_path / "table" / "notes.txt").read_text() == "mine"


def test_what_work_that_was_cut_short_left_is_swept(tmp_path: Path) -> None:
    table = small_table(tmp_path)
    left = ["docids-000002.pixnar", "changes-000002.log", ".documents-000002.pixnar.abc.part", ".table.pixnar.x.part"]
    for name in left:
        (tmp_path / "table" / name).write_bytes(b"half")
    table.add("d1", ["a"])
    assert not set(left) & set(os.listdir(tmp_path / "table"))
    # A build that was cut short leaves a folder that is no table yet.
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    for name in [*left, "lock", "vocabulary-000001.pixnar"]:
        (unfinished / name).write_bytes(b"half")
    with pytest.raises(PixnarError, match="is no docid table yet: wait until it is built, or build it again"):
        DocidTable.open(unfinished)
    build_table(tmp_path / "corpus", vocabulary(), unfinished, threads=1)
    assert sorted(os.listdir(unfinished))[:2] == ["changes-000001.log", "docids-000001.pixnar"]
    assert content(DocidTable.check(unfinished), IDS) == Model().content


def test_empty_and_odd_corpora(tmp_path: Path) -> None:
    write_corpus(tmp_path / "empty", [], [], [], {})
    table = build_table(tmp_path / "empty", vocabulary(), tmp_path / "e", threads=1)
    assert list(table) == []
    table.compact(threads=1)
    table.add("\ud800", ["half a pair"], Document("\ud800", "\udfff", "", {"k\ud800": "\udc00"}))
    for _ in range(2):
        assert [named for _, named in table] == [["\ud800"]]
        assert table.document("\ud800") == Document("\ud800", "\udfff", "", {"k\ud800": "\udc00"})
        table.compact(threads=1)
        table = DocidTable.check(tmp_path / "e")
    table.remove("\ud800")
    table.compact(threads=1)
    assert (list(table), table.documents) == ([], 0)
    rows = [DocidRow("d", "x " * 70_000)]
    write_corpus(tmp_path / "long", [Document("d", "", "", {})], rows, [], {})
    with pytest.raises(CorpusError, match="has more than 65,536 tokens"):
        build_table(tmp_path / "long", vocabulary(), tmp_path / "l", threads=1)
