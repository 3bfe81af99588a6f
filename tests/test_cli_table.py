"""The commands around a docid table, as a user meets them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from pixnar.cli import main
from pixnar.corpus import Document
from pixnar.table import DocidTable
from pixnar.vocab import Vocabulary
from tests.helpers.tables import DOCUMENTS, PAIRS, TEXTS, write_small_corpus

from .test_cli import fails, pixnar


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    Vocabulary.build([*TEXTS, *TEXTS], 700, min_count=2, threads=1).save(tmp_path / "v")
    return write_small_corpus(tmp_path / "corpus")


@pytest.fixture
def table(corpus: Path, tmp_path: Path) -> Path:
    done = pixnar("table", corpus, "--vocab", tmp_path / "v", "-o", tmp_path / "t", "--threads", "1")
    assert done.returncode == 0, done.stderr
    return tmp_path / "t"


def works(*arguments: str | Path) -> str:
    done = pixnar(*arguments)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def fails_here(capsys: pytest.CaptureFixture[str], message: str, *arguments: str | Path) -> None:
    """Like `fails`, but without a process of its own, for long lists of what may go wrong."""
    with pytest.raises(SystemExit) as stopped:
        main(list(map(str, arguments)))
    output = capsys.readouterr()
    assert stopped.value.code == 2
    assert message in output.err
    assert output.err.startswith("pixnar: ")
    assert output.err.count("\n") == 1
    assert output.out == ""


def docids(table: Path) -> dict[str, list[str]]:
    opened = DocidTable.check(table)
    return {opened.spelling(tokens) or "": named for tokens, named in opened}


def test_build_show_check(corpus: Path, tmp_path: Path) -> None:
    target = tmp_path / "t"
    shown = works("table", corpus, "--vocab", tmp_path / "v", "-o", target, "--slots", "3")
    for expected in ("docids 6", "pairs 8 of a docid", "documents 4", "more than 3 tokens 1 (16.7 %), with 3 slots"):
        assert expected in shown
    for part in ("docids and whom they name", "index", "spellings", "documents", "sum"):
        assert part in shown
    assert "tokens per docid mean" in shown
    shown = works("table", "show", target, "--json", tmp_path / "t.json", "--top", "2")
    assert "more than 16 tokens 0" in shown
    assert "[cheap][hotels]" in shown or "[flights to rome]" in shown
    figures = json.loads((tmp_path / "t.json").read_text())
    assert (figures["docids"], figures["pairs"], figures["documents"]) == (6, 8, 4)
    assert list(figures["longer"]) == ["8", "16", "32"]
    assert set(figures["bytes"]) == {"docids", "index", "spellings", "documents"}
    assert figures["bytes"]["docids"] + figures["bytes"]["index"] == (target / "docids-000001.pixnar").stat().st_size
    assert len(figures["samples"]) == 2
    assert set(figures["samples"][0]) == {"text", "tokens", "documents"}
    assert "t is sound: 8 pairs" in works("table", "check", target)
    fails("exists: choose another name or say --overwrite", "table", corpus, "--vocab", tmp_path / "v", "-o", target)
    shown = works(
        *("table", "build", corpus, "--vocab", tmp_path / "v", "-o", target),
        *("--overwrite", "--no-index", "--no-spellings"),
    )
    assert "index 0 0.0" in shown
    assert "spellings" not in shown.split("on disk")[1]
    assert "[" in works("table", "show", target)
    fails("was built without its index", "remove", target, "d1")


def test_add_remove_compact(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "2 pairs wait" in works(
        "add", table, "n1", "City Break", "red NOSE", "--title", "Nose", "--metadata", '{"country": "at"}'
    )
    opened = DocidTable.open(table)
    assert opened.document("n1") == Document("n1", "Nose", "", {"country": "at"})
    assert docids(table)["City Break"] == ["n1"]
    works("add", table, "d1", "red nose")
    assert docids(table)["red NOSE"] == ["d1", "n1"]
    works("add", table, "d1", "--title", "New title")
    assert DocidTable.open(table).document("d1") == DOCUMENTS[0]._replace(title="New title")
    assert "3 pairs added, 0 removed" in works("table", "show", table)
    assert "1 pairs of docid and document removed, 10 are left" in works("remove", table, "n1", "--docid", "Red nose")
    assert "1 pairs" in works("remove", table, "--docid", "CITY break")
    assert "3 pairs" in works("remove", table, "d2")
    before = docids(table)
    for message, *command in (
        ("no document 'nobody'", "nobody"),
        ("no document 'nobody'", "d1", "nobody"),
        ("no document 'd2'", "d2"),
        ("no docid 'city break'", "--docid", "city break"),
        ("does not name 'd3'", "d3", "--docid", "red nose"),
        ("has no text", "--docid", " "),
        ("give document ids, or --docid",),
    ):
        fails_here(capsys, message, "remove", table, *command)
    for message, *command in (
        ("give a DOC_ID",),
        ("give docids that are to name n9", "n9"),
        ("--metadata is no JSON", "n9", "x", "--metadata", "{"),
        ("--metadata is no JSON object", "n9", "x", "--metadata", "3"),
        ("has no text", "n9", "fine", " "),
        ("is empty", "", "fine"),
        ("name documents themselves", "n9", "--from", "x.jsonl"),
        ("no file x.jsonl", "--from", "x.jsonl"),
    ):
        fails_here(capsys, message, "add", table, *command)
    assert docids(table) == before
    works("compact", table, "--threads", "1")
    assert (
        docids(table)
        == before
        == {
            "cheap flights to Rome": ["d1"],
            "flights to rome": ["d1"],
            "red NOSE": ["d1"],
            "Rome": ["d1"],
            "night train": ["d3", "é4"],
        }
    )
    assert "0 pairs more, 0 less; now 6 pairs, 4 documents" in works("compact", table)
    assert "changes-000002.log" in os.listdir(table)


def test_add_files(table: Path, tmp_path: Path) -> None:
    rows = [{"_id": f"n{i % 7}", "docid": f"{TEXTS[i % 5]} {i // 5}"} for i in range(35)]
    with gzip.open(tmp_path / "new.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    described = [{"_id": "n1", "title": "One", "text": "", "price": 3}, {"_id": "d1", "text": "x", "title": "D"}]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in described))
    files: list[str | Path] = ["--from", tmp_path / "new.jsonl.gz", "--documents", tmp_path / "docs.jsonl"]
    for _ in range(2):  # again changes nothing
        assert "35 docids added, 2 documents described" in works("add", table, *files, "--batch", "9")
        opened = DocidTable.open(table)
        assert (opened.pairs, opened.documents) == (len(set(PAIRS)) - 1 + 35, 11)
    assert opened.document("n1") == Document("n1", "One", "", {"price": 3})
    assert opened.document("d1") == Document("d1", "D", "", {})
    assert opened.document("n2") == Document("n2", "", "", {})
    with (tmp_path / "bad.jsonl").open("w") as file:
        file.write('{"_id": "n9", "docid": "fine"}\n' * 20 + "nonsense\n")
    fails("bad.jsonl:21: not valid JSON", "add", table, "--from", tmp_path / "bad.jsonl", "--batch", "2")
    assert DocidTable.open(table).documents == 11
    done = pixnar("add", table, "--from", tmp_path / "bad.jsonl", "--skip-bad-rows")
    assert done.returncode == 0
    assert "skipped 1 bad row" in done.stderr
    assert DocidTable.open(table).documents == 12


def test_wrong_tables_are_one_line(
    corpus: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["table", "show"], ["table", "check"], ["compact"], ["add"], ["remove"]):
        more = ["d1", "x"] if command in (["add"], ["remove"]) else []
        fails_here(capsys, "does not exist", *command, tmp_path / "nowhere", *more)
    fails_here(capsys, "it has no table.pixnar", "table", "show", corpus)
    fails_here(capsys, "it is a file", "table", "show", tmp_path / "v")
    fails_here(capsys, "Missing option", "table", corpus, "-o", tmp_path / "x")
    fails_here(capsys, "not a pixnar file", "table", corpus, "--vocab", corpus / "corpus.jsonl", "-o", tmp_path / "x")
    fails_here(
        capsys, "no corpus folder", "table", tmp_path / "nowhere", "--vocab", tmp_path / "v", "-o", tmp_path / "x"
    )
    fails_here(
        capsys, "exists and is no docid table", "table", corpus, "--vocab", tmp_path / "v", "-o", corpus, "--overwrite"
    )
    with (table / "docids-000001.pixnar").open("r+b") as file:
        file.seek(-9, os.SEEK_END)
        file.write(b"\xff")
    fails_here(capsys, "does not match its checksum", "table", "check", table)
    (table / "documents-000001.pixnar").unlink()
    fails_here(capsys, "cannot open", "table", "show", table)
    assert not (tmp_path / "x").exists()


def test_help_shows_examples() -> None:
    for command, expected in (
        (["table"], "pixnar table CORPUS --vocab VOCAB -o TABLE"),
        (["table", "build"], "pixnar table build icd10 --vocab icd10.vocab -o icd10.table"),
        (["add"], "pixnar add icd10.table --from new-docids.jsonl"),
        (["remove"], 'pixnar remove icd10.table --docid "red nose"'),
        (["compact"], "pixnar compact icd10.table"),
    ):
        done = pixnar(*command, "--help")
        assert expected in " ".join(done.stdout.replace("│", " ").split())
