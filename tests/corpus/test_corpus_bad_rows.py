"""Each kind of bad row stops with file, line, fault and remedy, or is skipped and counted; none is lost silently."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar.base.errors import CorpusError
from pixnar.corpus import DocidRow, Skipped, open_corpus
from pixnar.corpus.parse import docid_from_json, docids_from_json

BEIR = {
    "corpus.jsonl": '{"_id": "d1", "text": "one"}\n{"_id": "d2", "text": "two"}\n',
    "docids.jsonl": '{"_id": "d1", "docid": "first"}\n{"_id": "d2", "docid": "second"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "x"}\n{"_id": "q2", "text": "y"}\n',
    "qrels/test.tsv": "q1\td1\t1\nq2\td2\t1\n",
}
MARCO = {
    "collection.tsv": "d1\tone\nd2\ttwo\n",
    "docids.tsv": "d1\tfirst\nd2\tsecond\n",
    "queries.tsv": "q1\tx\nq2\ty\n",
    "qrels.tsv": "q1 0 d1 1\nq2 0 d2 1\n",
}


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def rows_of(folder: Path, file: str, skip: bool) -> tuple[list[Any], Skipped]:
    corpus = open_corpus(folder, skip_bad_rows=skip)
    if "qrels" in file:
        return list(corpus.qrels("test")), corpus.skipped
    kind = file.split(".")[0].replace("corpus", "documents").replace("collection", "documents")
    return list(getattr(corpus, kind)()), corpus.skipped


JSON_FILES = ["corpus.jsonl", "docids.jsonl", "queries.jsonl"]
FAULTS = [
    *((file, b'{"_id": "d1", ', "not valid JSON", "not valid JSON: .* at column") for file in JSON_FILES),
    *((file, b'{"_id": "d1"} x', "not valid JSON", "not valid JSON: Extra data") for file in JSON_FILES),
    *((file, b'["d1", "one"]', "not a JSON object", "expected a JSON object, found a list") for file in JSON_FILES),
    *((file, b"[" * 100_000, "not valid JSON", "not valid JSON: .*recursion") for file in JSON_FILES),
    *((file, b"{}", "missing key", 'no key "_id"') for file in JSON_FILES),
    *((file, b"\xff\xfe{", "invalid UTF-8", "invalid UTF-8: byte 0xff at position 1") for file in JSON_FILES),
    *((file, b"   ", "blank line", "blank line") for file in [*JSON_FILES, "qrels/test.tsv"]),
    *((file, b"", "blank line", "blank line") for file in [*JSON_FILES, *MARCO]),
    ("corpus.jsonl", b'{"_id": "d3"}', "missing key", 'no key "text"'),
    ("corpus.jsonl", b'{"_id": "d3", "text": null}', "wrong type", '"text" is null, expected text'),
    ("corpus.jsonl", b'{"_id": "d3", "text": "", "title": 5}', "wrong type", '"title" is a number'),
    ("corpus.jsonl", b'{"_id": true, "text": ""}', "wrong type", '"_id" is true or false'),
    ("corpus.jsonl", b'{"_id": "", "text": ""}', "empty id", '"_id" is empty'),
    ("corpus.jsonl", b'{"_id": "d1", "text": "again"}', "duplicate document id", "duplicate document id 'd1'"),
    ("queries.jsonl", b'{"_id": "q1", "text": "again"}', "duplicate query id", "duplicate query id 'q1'"),
    ("queries.jsonl", b'{"_id": "q3", "text": ["a"]}', "wrong type", '"text" is a list, expected text'),
    ("docids.jsonl", b'{"_id": "d1", "docid": "a"} x', "not valid JSON", "not valid JSON: Extra data"),
    ("docids.jsonl", b'{"_id": "", "docid": "a"}', "empty id", '"_id" is empty'),
    ("docids.jsonl", b'{"_id": "d1"}', "missing key", 'no key "docid"'),
    ("docids.jsonl", b'{"_id": "d1", "docid": {}}', "wrong type", '"docid" is an object, expected text'),
    ("docids.jsonl", b'{"_id": 1.5, "docid": "a"}', "wrong type", '"_id" is a number, expected text'),
    ("docids.jsonl", b'{"_id": "d3", "docid": "a"}', "unknown document id", "unknown document id 'd3'"),
    ("docids.jsonl", b'{"_id": "d1", "docid": ""}', "empty docid", "docid '' is empty after normalisation"),
    ("docids.jsonl", b'{"_id": "d1", "docid": " \\t\\u3000"}', "empty docid", "is empty after normalisation"),
    ("qrels/test.tsv", b"q1", "wrong number of columns", "expected 2, 3 or 4 columns, found 1"),
    ("qrels/test.tsv", b"q1\td1\t1\t1\t1", "wrong number of columns", "columns, found 5"),
    ("qrels/test.tsv", b"q1\td1\t1.5", "score is not an integer", "score '1.5' is not an integer"),
    ("qrels/test.tsv", b"q1\td1\t1_0", "score is not an integer", "score '1_0' is not an integer"),
    ("qrels/test.tsv", b"query-id\tcorpus-id\tscore", "score is not an integer", "score 'score' is not an integer"),
    ("qrels/test.tsv", b"q1\td3\t1", "unknown document id", "unknown document id 'd3'"),
    ("qrels/test.tsv", b"q3\td1\t1", "unknown query id", "unknown query id 'q3'"),
    ("qrels/test.tsv", b"\td1\t1", "empty id", '"query id" is empty'),
    ("collection.tsv", b"d3", "wrong number of columns", "expected 2 tab-separated columns, found 1"),
    ("collection.tsv", b"d3\ta\tb\tc", "wrong number of columns", "expected 2 tab-separated columns, found 4"),
    ("collection.tsv", b"d1\tagain", "duplicate document id", "duplicate document id 'd1'"),
    ("docids.tsv", b"d1\t ", "empty docid", "docid ' ' is empty after normalisation"),
    ("docids.tsv", b"d9\tx", "unknown document id", "unknown document id 'd9'"),
    ("queries.tsv", b"q3\tx\ty", "wrong number of columns", "expected 2 tab-separated columns, found 3"),
    ("qrels.tsv", b"q1 0 d1 high", "score is not an integer", "score 'high' is not an integer"),
]


@pytest.mark.parametrize(("file", "line", "reason", "message"), FAULTS)
def test_bad_row(file: str, line: bytes, reason: str, message: str, tmp_path: Path) -> None:
    lay(tmp_path, MARCO if file in MARCO else BEIR)
    path = tmp_path / file
    sound, _ = rows_of(tmp_path, file, skip=False)
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, line, second]))
    with pytest.raises(CorpusError, match=message) as caught:
        rows_of(tmp_path, file, skip=False)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "--skip-bad-rows" in str(caught.value)
    assert "\n" not in str(caught.value)
    rows, skipped = rows_of(tmp_path, file, skip=True)
    assert rows == sound
    assert skipped == {(str(path), reason): 1}
    assert skipped.summary() == f"skipped 1 bad row: 1 {reason} ({path})"


def test_the_first_bad_row_is_the_one_reported(tmp_path: Path) -> None:
    lay(tmp_path, BEIR)
    lines = [
        '{"_id": "d1", "docid": "a"}',
        '{"_id": "nobody", "docid": "a"}',
        "",
        "no json",
        '{"_id": "d1", "docid": ""}',
    ]
    (tmp_path / "docids.jsonl").write_text("\n".join([*lines, lines[0]]))
    with pytest.raises(CorpusError, match=r"docids\.jsonl:2: unknown document id 'nobody'"):
        rows_of(tmp_path, "docids.jsonl", skip=False)
    rows, skipped = rows_of(tmp_path, "docids.jsonl", skip=True)
    assert len(rows) == 2
    assert skipped.total() == 4


def test_reading_twice_counts_once(tmp_path: Path) -> None:
    lay(tmp_path, BEIR)
    with open(tmp_path / "corpus.jsonl", "a") as file:
        file.write("broken\nbroken\n")
    corpus = open_corpus(tmp_path, skip_bad_rows=True)
    list(corpus.docids())
    list(corpus.documents())
    list(corpus.documents())
    assert corpus.skipped == {(str(tmp_path / "corpus.jsonl"), "not valid JSON"): 2}


def test_a_docid_of_a_skipped_document_is_counted_too(tmp_path: Path) -> None:
    lay(tmp_path, BEIR | {"corpus.jsonl": '{"_id": "d1", "text": "one"}\n{"_id": "d2"}\n'})
    rows, skipped = rows_of(tmp_path, "docids.jsonl", skip=True)
    assert rows == [("d1", "first")]
    assert sorted(reason for _, reason in skipped) == ["missing key", "unknown document id"]


def test_unchecked_ids_are_trusted(tmp_path: Path) -> None:
    lay(tmp_path, BEIR | {"corpus.jsonl": '{"_id": "d1", "text": "one"}\n' * 2})
    corpus = open_corpus(tmp_path, check_ids=False)
    assert len(list(corpus.documents())) == 2
    assert len(list(corpus.docids())) == 2


def test_blank_lines_across_blocks_keep_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixnar.corpus.lines._BLOCK", 7)
    lay(tmp_path, BEIR | {"queries.jsonl": BEIR["queries.jsonl"].replace("\n", "\n\n\n \n", 1) + "\n" * 30})
    with pytest.raises(CorpusError, match=r"queries\.jsonl:2: blank line"):
        rows_of(tmp_path, "queries.jsonl", skip=False)
    rows, skipped = rows_of(tmp_path, "queries.jsonl", skip=True)
    assert len(rows) == 2
    assert skipped.total() == 3


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("damage", ["cut", "header", "empty", "flipped", "not gzip"])
def test_damaged_gzip_is_an_error_even_when_skipping(damage: str, skip: bool, tmp_path: Path) -> None:
    lay(tmp_path, BEIR)
    (tmp_path / "docids.jsonl").unlink()
    path = tmp_path / "docids.jsonl.gz"
    whole = gzip.compress(b"".join(b'{"_id": "d1", "docid": "number %d"}\n' % i for i in range(40_000)))
    flipped = bytearray(whole)
    flipped[-6] ^= 1
    damaged = {"cut": whole[:-20], "header": whole[:5], "empty": b"", "flipped": bytes(flipped), "not gzip": b"{}\n"}
    path.write_bytes(damaged[damage])
    with pytest.raises(CorpusError, match=r"gzip.*copy or compress it again") as caught:
        rows_of(tmp_path, "docids.jsonl", skip)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no corpus folder .*nowhere; give a folder with corpus\.jsonl"):
        open_corpus(tmp_path / "nowhere")
    with pytest.raises(CorpusError, match=r"holds no corpus; looked for corpus\.jsonl .*collection\.tsv .*corpus\.par"):
        open_corpus(tmp_path)
    lay(tmp_path, {"corpus.jsonl": BEIR["corpus.jsonl"]})
    with pytest.raises(CorpusError, match="is a file; give the folder"):
        open_corpus(tmp_path / "corpus.jsonl")
    corpus = open_corpus(tmp_path)
    with pytest.raises(CorpusError, match=r"has no docids\.jsonl or docids\.jsonl\.gz; add it"):
        corpus.docids()
    with pytest.raises(CorpusError, match=r"has no queries\.jsonl"):
        corpus.queries()
    with pytest.raises(CorpusError, match="has no split 'test'; it has no judgements at all"):
        corpus.qrels("test")
    lay(tmp_path, {"qrels/dev.tsv": "", "qrels/train.tsv": ""})
    with pytest.raises(CorpusError, match=r"has no split '\.\./x'; choose one of: train, dev"):
        corpus.qrels("../x")


def test_two_of_a_kind_are_refused(tmp_path: Path) -> None:
    lay(tmp_path, BEIR | {"docids.jsonl.gz": "x"})
    with pytest.raises(CorpusError, match=r"has both docids\.jsonl and docids\.jsonl\.gz; remove one"):
        open_corpus(tmp_path).docids()
    lay(tmp_path, {"collection.tsv": "1\ta\n"})
    with pytest.raises(CorpusError, match=r"several corpora \(corpus\.jsonl, collection\.tsv\)"):
        open_corpus(tmp_path)


def parquet_corpus(folder: Path, docids: Any) -> Path:
    ids = pyarrow.table({"_id": ["d1", "d2"], "text": ["a", "b"]})
    pyarrow.parquet.write_table(ids, folder / "corpus.parquet")
    pyarrow.parquet.write_table(docids, folder / "docids.parquet")
    return folder / "docids.parquet"


def test_bad_rows_in_parquet(tmp_path: Path) -> None:
    broken = pyarrow.array([b"fine", b"\xff", b" ", b"x", None, b"ok"], pyarrow.binary()).view(pyarrow.string())
    path = parquet_corpus(tmp_path, pyarrow.table({"_id": ["d1", "d1", "d1", "d9", "d1", "d2"], "docid": broken}))
    with pytest.raises(CorpusError, match=r"docids\.parquet:2: invalid UTF-8.*--skip-bad-rows"):
        rows_of(tmp_path, "docids.jsonl", skip=False)
    rows, skipped = rows_of(tmp_path, "docids.jsonl", skip=True)
    assert rows == [("d1", "fine"), ("d2", "ok")]
    reasons = ["empty docid", "invalid UTF-8", "unknown document id", "wrong type"]
    assert skipped == {(str(path), reason): 1 for reason in reasons}


def test_row_numbers_in_parquet_go_on_across_batches(tmp_path: Path) -> None:
    texts = ["x"] * 5000 + [" "]
    parquet_corpus(tmp_path, pyarrow.table({"_id": ["d1"] * len(texts), "docid": texts}))
    with pytest.raises(CorpusError, match=r"docids\.parquet:5001: docid ' ' is empty"):
        rows_of(tmp_path, "docids.jsonl", skip=False)


def test_unreadable_parquet(tmp_path: Path) -> None:
    path = parquet_corpus(tmp_path, pyarrow.table({"_id": ["d1"], "name": ["x"]}))
    with pytest.raises(CorpusError, match=r"docids\.parquet: no column docid; its columns are _id, name"):
        rows_of(tmp_path, "docids.jsonl", skip=True)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CorpusError, match=r"docids\.parquet: not readable as Parquet \(.*\); copy or write it again"):
        rows_of(tmp_path, "docids.jsonl", skip=True)


values = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text("a \u3000\u00a0é", max_size=3), st.just(["x"]))
objects = st.dictionaries(st.sampled_from(["_id", "docid", "more"]), values).map(json.dumps)
odd = st.sampled_from(["", " ", "{", "[]", '"_id"', '{"_id": "a", "docid": "b"} ', ' {"_id": "a", "docid": "b"}', "1"])
sound = st.builds(lambda i, d: json.dumps({"_id": i, "docid": d}), st.text(min_size=1), st.text("ab é", min_size=1))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(sound, sound, sound, objects, odd), max_size=4))
def test_the_fast_docid_parser_agrees_with_the_plain_one(lines: list[str]) -> None:
    fast = docids_from_json(lines)
    if fast is not None:
        assert fast == [docid_from_json(line) for line in lines]


def test_the_fast_docid_parser_is_used_for_ordinary_rows() -> None:
    assert docids_from_json(['{"_id": "a", "docid": "b"}', '{"_id": 2, "docid": "ç!"}']) == [
        DocidRow("a", "b"),
        DocidRow("2", "ç!"),
    ]
