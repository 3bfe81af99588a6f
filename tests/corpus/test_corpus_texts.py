"""Docid texts from plain files and standard input."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from pixnar.base.errors import CorpusError
from pixnar.corpus import Skipped, read_texts


def test_every_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\ufeffone\r\n\r\n  \r\ntwo\u2028three\nfour")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"five\n"))
    (tmp_path / "c.jsonl").write_text('{"_id": 1, "docid": "six", "text": "no"}\n{"text": "seven"}\n\n')
    pyarrow.parquet.write_table(pyarrow.table({"_id": ["x"], "docid": ["eight"]}), tmp_path / "d.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["nine"]}), tmp_path / "e.parquet")
    calls: list[tuple[str, int, int]] = []
    files = [tmp_path / name for name in ("a.txt", "b.txt.gz", "c.jsonl", "d.parquet", "e.parquet")]
    texts = list(read_texts(files, progress=lambda *call: calls.append(call)))
    assert texts == ["one", "two\u2028three", "four", "five", "six", "seven", "eight", "nine"]
    total = sum(file.stat().st_size for file in files)
    assert calls[-1] == ("texts", total, total)
    assert calls == sorted(calls)
    assert list(read_texts(str(files[1]))) == ["five"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n\ntwo\n\xff\n")))
    skipped = Skipped()
    assert list(read_texts("-", skip_bad_rows=True, skipped=skipped)) == ["one", "two"]
    assert skipped == {("<stdin>", "invalid UTF-8"): 1}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n\n\xff\n")))
    with pytest.raises(CorpusError, match=r"<stdin>:3: invalid UTF-8"):
        list(read_texts(["-"]))


@pytest.mark.parametrize(
    ("name", "line", "reason", "message"),
    [
        ("a.txt", b"ab\xc3", "invalid UTF-8", "byte 0xc3 at position 3"),
        ("a.jsonl", b"{", "not valid JSON", "not valid JSON"),
        ("a.jsonl", b"", "blank line", "blank line"),
        ("a.jsonl", b'{"_id": "a"}', "missing key", 'no key "docid" or "text"'),
        ("a.jsonl", b'{"docid": 5, "text": "x"}', "wrong type", '"docid" is a number'),
        ("a.jsonl", b'{"docid": " "}', "empty docid", "is empty after normalisation"),
    ],
)
def test_bad_rows(name: str, line: bytes, reason: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b'{"docid": "x"}\n' + line + b'\n{"docid": "y"}\n')
    with pytest.raises(CorpusError, match=message) as caught:
        list(read_texts([path]))
    assert str(caught.value).startswith(f"{path}:2: ")
    skipped = Skipped()
    assert len(list(read_texts([path], skip_bad_rows=True, skipped=skipped))) == 2
    assert skipped == {(str(path), reason): 1}


def test_wrong_paths_are_refused_before_reading(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no file or folder .*none\.txt; give a corpus folder, files"):
        read_texts([tmp_path / "none.txt"])
    with pytest.raises(CorpusError, match="is a folder; give files"):
        read_texts(tmp_path)
    (tmp_path / "a.csv").write_text("x")
    with pytest.raises(CorpusError, match=r"a\.csv: unknown kind of file; give files ending in \.txt"):
        read_texts(tmp_path / "a.csv")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"x" * 1000)[:-4])
    with pytest.raises(CorpusError, match=r"a\.txt\.gz: truncated or damaged gzip"):
        list(read_texts(tmp_path / "a.txt.gz", skip_bad_rows=True))
