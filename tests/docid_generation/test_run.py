from __future__ import annotations

import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pixnar.base.errors import PixnarError
from pixnar.base.storage import check_writable
from pixnar.corpus import Document, open_corpus
from pixnar.docid_generation import Doc2QueryOptions, DocidOptions, make_docids
from pixnar.docid_generation import run as run_module
from pixnar.docid_generation.options import target_of
from pixnar.docid_generation.run import Part, Parts
from pixnar.vocab import normalize
from tests.helpers.fit_corpora import WORDS
from tests.helpers.query_models import save_t5
from tests.helpers.text_corpora import passages, write_text_only

ROOT = Path(__file__).parents[2]
_DIES_AT_THE_END = """
import os, signal, sys
from pixnar.corpus import open_corpus
from pixnar.docid_generation import make_docids, run

def kill(self, number, read=run.Parts.read, seen=set()):
    if number in seen:  # read once before, to see whether it is done; now it is being joined
        os.kill(os.getpid(), signal.SIGKILL)
    seen.add(number)
    return read(self, number)

run.Parts.read = kill
make_docids(open_corpus(sys.argv[1]), sys.argv[1] + "/docids.jsonl")
"""


def rows(path: Path) -> list[tuple[str, str]]:
    return [(row.doc_id, row.docid) for row in open_corpus(path.parent, docids=path).docids()]


def test_docids_of_text(tmp_path: Path) -> None:
    documents = [*passages(30), Document("empty", "", " ", {})]
    folder = write_text_only(tmp_path / "corpus", documents)
    seen: list[tuple[str, int, int]] = []
    target = folder / "docids.jsonl"
    made = make_docids(open_corpus(folder), target, progress=lambda *told: seen.append(told))
    found = rows(target)
    assert (made.documents, made.unnamed) == (31, 1)
    assert sum(made.made.values()) == len(found)
    assert made.made.keys() == {"titles", "sentences", "phrases"}
    assert len({(doc_id, normalize(docid)) for doc_id, docid in found}) == len(found)
    for document in documents[:-1]:
        own = [docid for doc_id, docid in found if doc_id == document.doc_id]
        assert (own[0] == document.title) == bool(document.title)
        said = normalize(f"{document.title} {document.text}")
        assert all(normalize(docid).rstrip(".") in said for docid in own)
    assert [doc_id for doc_id, _ in found] == sorted(doc_id for doc_id, _ in found)
    assert ("naming documents", 31, 31) in seen
    assert sorted(os.listdir(folder)) == ["corpus.jsonl", "docids.jsonl"]
    for other in ("a.jsonl.gz", "a.tsv"):
        make_docids(open_corpus(folder), tmp_path / other)
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == target.read_bytes()
    tsv = [tuple(line.split("\t")) for line in (tmp_path / "a.tsv").read_text().splitlines()]
    assert tsv == found


def test_files_of_queries_and_the_filter(tmp_path: Path) -> None:
    texts = ["Green tea in a cup", "Black tea from Assam", "Coffee of Kenya"]
    folder = write_text_only(tmp_path / "corpus", [Document(f"d{i}", "", text, {}) for i, text in enumerate(texts)])
    queries = {
        "d2": ["who grows coffee", "Who  grows coffee", "coffee of kenya", "who drinks tea"],
        "d0": ["tea in a cup", "assam tea", " "],
        "elsewhere": ["what is rome"],
    }
    (tmp_path / "pid2query.pkl").write_bytes(pickle.dumps(queries))
    sources = ("sentences", str(tmp_path / "pid2query.pkl"))
    made = make_docids(open_corpus(folder), tmp_path / "all.jsonl", DocidOptions(sources=sources, sentences=1))
    assert rows_of(tmp_path / "all.jsonl") == [
        ("d0", "Green tea in a cup"),
        ("d0", "tea in a cup"),
        ("d0", "assam tea"),
        ("d1", "Black tea from Assam"),
        ("d2", "Coffee of Kenya"),
        ("d2", "who grows coffee"),
        ("d2", "who drinks tea"),
    ]
    assert made.made == {"sentences": 3, sources[1]: 4}
    make_docids(open_corpus(folder), tmp_path / "some.jsonl", DocidOptions(sources=sources, sentences=1, roundtrip=1))
    kept = [row for row in rows_of(tmp_path / "all.jsonl") if row[1] not in ("assam tea", "who drinks tea")]
    assert rows_of(tmp_path / "some.jsonl") == kept
    make_docids(open_corpus(folder), tmp_path / "more.jsonl", DocidOptions(sources=sources, sentences=1, roundtrip=2))
    assert ("d0", "assam tea") in rows_of(tmp_path / "more.jsonl")


def rows_of(path: Path) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["_id"], row["docid"]) for row in found]


def test_killed_and_started_again(tmp_path: Path) -> None:
    """Killed with SIGKILL, it goes on and ends with the bytes of a run in one go; there is never half a file."""
    folder = write_text_only(tmp_path / "corpus", passages(160))
    model = save_t5(tmp_path / "t5", [" ".join(WORDS)])
    queries = {document.doc_id: [f"query {document.doc_id}", document.text[:30]] for document in passages(160)}
    (tmp_path / "queries.json").write_text(json.dumps(queries))
    sources = ("titles", "sentences", "model", "phrases", str(tmp_path / "queries.json"))
    options = ["--from", ",".join(sources), "--model", str(model), "--batch", "2", "--max-length", "5", "--seed", "3"]
    options += ["--keep-only-finding", "40", "--threads", "1", "--device", "cpu"]
    command = [
        sys.executable,
        "-m",
        "pixnar.cli",
        "docids",
        str(folder),
        *options,
        "-o",
        str(tmp_path / "broken.jsonl"),
    ]
    broken, work = tmp_path / "broken.jsonl", tmp_path / "broken.jsonl.work"
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while len(list(work.glob("*.docids"))) < 3:
        assert running.poll() is None, running.communicate()
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert not broken.exists()
    parts = sorted(work.glob("*.docids"))
    assert 3 <= len(parts) < 10
    times = [path.stat().st_mtime_ns for path in parts]
    parts[1].write_bytes(parts[1].read_bytes()[:-7])

    wish = DocidOptions(
        sources=sources,
        doc2query=Doc2QueryOptions(model=str(model), batch=2, longest=5, seed=3, device="cpu"),
        roundtrip=40,
    )
    other = replace(wish, doc2query=replace(wish.doc2query, seed=4))
    with pytest.raises(PixnarError, match=r"was begun with another options\.doc2query\.seed"):
        make_docids(open_corpus(folder), broken, other)
    assert [path.stat().st_mtime_ns for path in parts][2:] == times[2:]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert not work.exists()
    made = make_docids(open_corpus(folder), tmp_path / "whole.jsonl", wish, threads=1)
    assert broken.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert made.made.keys() == set(sources)
    assert not any(docid.startswith("query ") for _, docid in rows_of(broken))  # words of no text find nothing


def test_parts_that_are_done_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a part holds is taken as it is, unless its checksum is wrong."""
    monkeypatch.setattr("pixnar.docid_generation.run._PART", 10)
    folder = write_text_only(tmp_path / "corpus", passages(35))
    stop = RuntimeError("pulled the plug")

    def pull(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("naming documents", 20):
            raise stop

    target = tmp_path / "docids.jsonl"
    with pytest.raises(RuntimeError, match="plug"):
        make_docids(open_corpus(folder), target, progress=pull)
    parts = sorted((tmp_path / "docids.jsonl.work").glob("*.docids"))
    assert len(parts) == 2
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in parts]
    with pytest.raises(RuntimeError, match="plug"):
        make_docids(open_corpus(folder), target, progress=pull)
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in parts] == before
    with open(folder / "corpus.jsonl", "a") as file:
        file.write(json.dumps({"_id": "new", "text": "Something new."}) + "\n")
    with pytest.raises(PixnarError, match="was begun with another corpus: use the same again, or pass --overwrite"):
        make_docids(open_corpus(folder), target)
    made = make_docids(open_corpus(folder), target, overwrite=True)
    assert made.documents == 36
    assert len({doc_id for doc_id, _ in rows_of(target)}) == 36
    whole = make_docids(open_corpus(folder), tmp_path / "whole.jsonl", DocidOptions())
    assert (whole, target.read_bytes()) == (made, (tmp_path / "whole.jsonl").read_bytes())


def test_what_is_there_stays(tmp_path: Path) -> None:
    folder = write_text_only(tmp_path / "corpus", passages(3))
    target = folder / "docids.jsonl"
    target.write_text("mine\n")
    with pytest.raises(PixnarError, match="is there already: choose another output with -o, or give --overwrite"):
        make_docids(open_corpus(folder), target)
    assert target.read_text() == "mine\n"
    make_docids(open_corpus(folder), target, overwrite=True)
    assert len(rows(target)) > 3
    target.write_text("")  # as `pixnar corpus convert` leaves it
    make_docids(open_corpus(folder), target)
    (tmp_path / "a.jsonl.work").mkdir()
    (tmp_path / "a.jsonl.work" / "letter.txt").touch()
    with pytest.raises(PixnarError, match=r"a\.jsonl\.work is needed for the work and holds something else"):
        make_docids(open_corpus(folder), tmp_path / "a.jsonl", overwrite=True)
    assert (tmp_path / "a.jsonl.work" / "letter.txt").exists()


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"sources": ()}, "no source of docids"),
        (
            {"sources": ("title",)},
            "unknown source of docids 'title': give titles, sentences, phrases, model, or a file",
        ),
        ({"sources": ("none.tsv",)}, r"no file none\.tsv"),
        ({"sources": ("titles", "titles")}, "given twice"),
        ({"sources": ("model",)}, "--from model and --model NAME go together"),
        ({"doc2query": Doc2QueryOptions(model="t5")}, "--from model and --model NAME go together"),
        ({"roundtrip": 3}, "--keep-only-finding is about pseudo-queries"),
        ({"sentences": -1}, "sentences is too small"),
        ({"sources": ("model",), "doc2query": Doc2QueryOptions(model="t5", batch=0)}, "batch is too small"),
    ],
)
def test_wishes_that_cannot_be_granted(wish: dict[str, object], message: str) -> None:
    with pytest.raises(PixnarError, match=message):
        DocidOptions(**wish)  # type: ignore[arg-type]


def test_nothing_to_name(tmp_path: Path) -> None:
    folder = write_text_only(tmp_path / "corpus", [Document("d", "", "", {})])
    with pytest.raises(PixnarError, match="no docid came of it; its documents have neither titles nor text"):
        make_docids(open_corpus(folder), tmp_path / "a.jsonl")
    other = write_text_only(tmp_path / "other", [Document("d", "", "A text without a title.", {})])
    with pytest.raises(PixnarError, match="no docid came of it; titles gave nothing for any document: name other"):
        make_docids(open_corpus(other), tmp_path / "a.jsonl", DocidOptions(sources=("titles",)))
    (tmp_path / "queries.tsv").write_text("other\tquery\n")
    with pytest.raises(PixnarError, match="the ids in the files are perhaps not those"):
        make_docids(open_corpus(folder), tmp_path / "b.jsonl", DocidOptions(sources=(str(tmp_path / "queries.tsv"),)))
    with pytest.raises(PixnarError, match=r"ends in \.jsonl or \.tsv"):
        make_docids(open_corpus(folder), tmp_path / "a.csv")
    with pytest.raises(PixnarError, match="does not exist; create it first"):
        make_docids(open_corpus(folder), tmp_path / "none" / "a.jsonl")


def test_where_docids_go(tmp_path: Path) -> None:
    beir = write_text_only(tmp_path / "beir", passages(1))
    assert target_of(str(beir), None) == beir / "docids.jsonl"
    (beir / "docids.jsonl.gz").write_bytes(gzip.compress(b""))
    assert target_of(str(beir), None) == beir / "docids.jsonl.gz"
    assert target_of(str(beir), tmp_path) == tmp_path / "docids.jsonl"
    (tmp_path / "marco").mkdir()
    (tmp_path / "marco" / "collection.tsv").write_text("1\tA text of three sentences.\n2\tAnother text.\n")
    target = target_of(str(tmp_path / "marco"), None)
    make_docids(open_corpus(tmp_path / "marco"), target)
    assert {row.doc_id for row in open_corpus(tmp_path / "marco").docids()} == {"1", "2"}
    with pytest.raises(PixnarError, match="give -o FILE"):
        target_of("irds:beir/scifact", None)


def test_killed_while_the_file_is_put_together(tmp_path: Path) -> None:
    """The last moment, in the corpus' own folder: the file is not there yet, and the next run ends what was begun."""
    folder = write_text_only(tmp_path / "corpus", passages(12))
    command = [sys.executable, "-c", _DIES_AT_THE_END, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (folder / "docids.jsonl").exists()
    assert len(list((folder / "docids.jsonl.work").glob("*.docids"))) == 1
    assert list((folder / "docids.jsonl.work").glob(".*.part"))  # half of the file
    (folder / ".docids.jsonl.abc.part").touch()  # as an older release would have left it
    whole = make_docids(open_corpus(folder), folder / "docids.jsonl")
    assert sorted(os.listdir(folder)) == [".docids.jsonl.abc.part", "corpus.jsonl", "docids.jsonl"]
    other = make_docids(open_corpus(folder), tmp_path / "whole.jsonl")
    assert (whole, (folder / "docids.jsonl").read_bytes()) == (other, (tmp_path / "whole.jsonl").read_bytes())


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    folder = write_text_only(tmp_path / "corpus", passages(3))
    (tmp_path / "elsewhere").mkdir()
    (folder / "docids.jsonl").symlink_to(tmp_path / "elsewhere" / "mine.jsonl")
    make_docids(open_corpus(folder), folder / "docids.jsonl")
    assert (folder / "docids.jsonl").is_symlink()
    assert len(rows_of(tmp_path / "elsewhere" / "mine.jsonl")) > 3


def test_what_fails_at_once_is_not_begun(tmp_path: Path) -> None:
    """A slip of the pen does not stand in the way of the command that is meant."""
    folder = write_text_only(tmp_path / "corpus", passages(6))
    model = save_t5(tmp_path / "t5", [" ".join(WORDS)])
    wish = DocidOptions(
        sources=("model",), doc2query=Doc2QueryOptions(model=str(tmp_path / "t6"), longest=4, device="cpu")
    )
    with pytest.raises(PixnarError, match="cannot load the model"):
        make_docids(open_corpus(folder), folder / "docids.jsonl", wish)
    assert os.listdir(folder) == ["corpus.jsonl"]
    right = replace(wish, doc2query=replace(wish.doc2query, model=str(model)))
    (tmp_path / "queries.tsv").write_text("".join(f"{document.doc_id}\tzzz\n" for document in passages(6)))
    filtered = DocidOptions(sources=(str(tmp_path / "queries.tsv"),), roundtrip=3)
    with pytest.raises(PixnarError, match="of 6 queries none finds its document among the 3 best: raise --keep-only"):
        make_docids(open_corpus(folder), folder / "docids.jsonl", filtered)
    assert os.listdir(folder) == ["corpus.jsonl"]
    (tmp_path / "all.jsonl.work").touch()
    with pytest.raises(PixnarError, match=r"all\.jsonl\.work is needed for the work and holds something else"):
        make_docids(open_corpus(folder), tmp_path / "all.jsonl", right)
    made = make_docids(open_corpus(folder), folder / "docids.jsonl", right)
    assert made.made["model"] > 0


def test_one_run_at_a_time(tmp_path: Path) -> None:
    """Two at once would put their parts into one file."""
    folder = write_text_only(tmp_path / "corpus", passages(6))
    target = tmp_path / "a.jsonl"
    with Parts.claim(target, {"of": "somebody else"}) as parts:
        parts.write(0, Part(documents=1, lines=[b"theirs\n"]))
        with pytest.raises(PixnarError, match="is being changed by another process: try again when it is done"):
            make_docids(open_corpus(folder), target, overwrite=True)
        assert [line for part in (parts.read(0),) if part for line in part.lines] == [b"theirs\n"]
    with pytest.raises(PixnarError, match="was begun with another version"):
        make_docids(open_corpus(folder), target)
    make_docids(open_corpus(folder), target, overwrite=True)  # who is gone is in nobody's way
    make_docids(open_corpus(folder), tmp_path / "b.jsonl")
    assert target.read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "b.jsonl", "corpus"]


def test_waiting_for_a_run_that_ends_is_told(tmp_path: Path) -> None:
    """It removes its folder at the end: a lock in a folder that is gone keeps nobody else out."""
    target = tmp_path / "a.jsonl"
    with ThreadPoolExecutor(1) as other, Parts.claim(target, {"of": "somebody"}) as parts:
        waiting = other.submit(lambda: Parts.claim(target, {"of": "somebody"}).__enter__())
        time.sleep(0.3)
        parts.forget(all_of_it=True)
        parts.folder.mkdir()
        (parts.folder / "lock").touch()  # a third one
    with pytest.raises(PixnarError, match="was in use until now by another run, which has ended: run the command"):
        waiting.result()


@pytest.mark.parametrize("doc_id", ["a\tb", "x\ny", "\udc80q", " d"])
def test_ids_that_a_tsv_cannot_hold(tmp_path: Path, doc_id: str) -> None:
    text = "Green tea grows on hills."
    folder = write_text_only(tmp_path / "corpus", [Document("d0", "", text, {}), Document(doc_id, "", text, {})])
    with pytest.raises(PixnarError, match=r"cannot stand in a \.tsv: write a \.jsonl"):
        make_docids(open_corpus(folder), tmp_path / "a.tsv")
    assert os.listdir(tmp_path) == ["corpus"]
    make_docids(open_corpus(folder), tmp_path / "a.jsonl")
    assert {row[0] for row in rows_of(tmp_path / "a.jsonl")} == {"d0", doc_id}


def test_a_query_that_many_answer_equally_finds_none_of_them(tmp_path: Path) -> None:
    documents = [Document(f"d{i}", "", "hot tea" if i < 5 else "cold coffee", {}) for i in range(7)]
    folder = write_text_only(tmp_path / "corpus", documents)
    (tmp_path / "queries.tsv").write_text("".join(f"d{i}\t{documents[i].text}\n" for i in range(7)))
    for finding, found in ((1, 0), (2, 2), (4, 2), (5, 7)):
        target = tmp_path / f"{finding}.jsonl"
        wish = DocidOptions(sources=(str(tmp_path / "queries.tsv"),), roundtrip=finding)
        if found:
            assert sum(make_docids(open_corpus(folder), target, wish).made.values()) == found
        else:
            with pytest.raises(PixnarError, match="of 7 queries none finds its document"):
                make_docids(open_corpus(folder), target, wish)


def test_a_newcomer_keeps_what_it_began(tmp_path: Path) -> None:
    """Whoever gives a folder up does not touch what is there afterwards."""
    target = tmp_path / "a.jsonl"
    with Parts.claim(target, {"of": "one"}) as first:
        first.forget()
        with Parts.claim(target, {"of": "another"}) as second:
            first.forget(all_of_it=True)
            assert sorted(os.listdir(second.folder)) == ["begun.json", "lock"]


def test_beginning_anew_may_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.jsonl"
    with Parts.claim(target, {"of": "one"}) as parts:
        parts.write(0, Part(documents=1, lines=[b"a\n"]))
        parts.write(1, Part(documents=1, lines=[b"b\n"]))
        (parts.folder / "more").mkdir()
    unlink = Path.unlink

    def interrupted(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".docids" and len(list(path.parent.glob("*.docids"))) == 1:
            raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", interrupted)
    with pytest.raises(KeyboardInterrupt), Parts.claim(target, {"of": "two"}, overwrite=True):
        pass
    monkeypatch.undo()
    with Parts.claim(target, {"of": "two"}, overwrite=True) as parts:
        assert sorted(os.listdir(parts.folder)) == ["begun.json", "lock"]


def test_a_file_that_another_run_made_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_text_only(tmp_path / "corpus", passages(3))
    target = tmp_path / "a.jsonl"
    check = check_writable

    def late(path: Path) -> None:
        check(path)
        target.write_text("theirs\n")  # after the first look, before the lock

    monkeypatch.setattr(run_module, "check_writable", late)
    with pytest.raises(PixnarError, match="is there already"):
        make_docids(open_corpus(folder), target)
    assert (sorted(os.listdir(tmp_path)), target.read_text()) == (["a.jsonl", "corpus"], "theirs\n")
