from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from pixnar.base.errors import CorpusError
from pixnar.corpus import Skipped
from pixnar.docid_generation.query_files import QueryLookup, read_queries_of

MINDER = {"12": ["what is tea", "who drinks tea"], "7": ["where is rome", "where is rome"]}
ROWS = [(doc_id, list(queries)) for doc_id, queries in MINDER.items()]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_the_pickles_of_minder(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "pid2query_Wikipedia.pkl"
    path.write_bytes(pickle.dumps(MINDER, protocol))
    assert list(read_queries_of(path)) == ROWS
    path.write_bytes(pickle.dumps({7: ("where is rome",)}, protocol))
    assert list(read_queries_of(path)) == [("7", ["where is rome"])]


class Harm:
    """What a hostile pickle does when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_in_a_pickle_is_run(tmp_path: Path, protocol: int) -> None:
    harm = pickle.dumps({"7": Harm(tmp_path / "harmed")}, protocol)
    pickle.loads(harm)
    (tmp_path / "harmed").rmdir()  # it would have
    (tmp_path / "queries.pkl").write_bytes(harm)
    with pytest.raises(CorpusError, match=r"queries\.pkl is not plain data in a pickle .*mkdir.*save it as JSON"):
        read_queries_of(tmp_path / "queries.pkl")
    assert not (tmp_path / "harmed").exists()


def test_the_other_files(tmp_path: Path) -> None:
    lines = [
        {"_id": "12", "queries": MINDER["12"]},
        {"id": 7, "predicted_queries": MINDER["7"][:1]},
        {"pid": "7", "query": MINDER["7"][1]},
    ]
    texts = {
        "a.json": json.dumps(MINDER),
        "a.jsonl": "".join(json.dumps(line) + "\n" for line in lines),
        "a.tsv": "12\twhat is tea\twho drinks tea\n7\twhere is rome\n7\twhere is rome\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        for path in (tmp_path / name, tmp_path / f"{name}.gz"):
            found: dict[str, list[str]] = {}
            for doc_id, queries in read_queries_of(path):
                found.setdefault(doc_id, []).extend(queries)
            assert found == MINDER


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pkl", b"", "not plain data in a pickle"),
        ("a.pkl", b"\x80\x04junk", "not plain data in a pickle"),
        ("a.pkl", pickle.dumps(MINDER)[:-20], "not plain data in a pickle"),
        ("a.pkl", pickle.dumps(["a"]), "holds a list; a dictionary"),
        ("a.pkl", pickle.dumps({"1": [b"a"]}), "document '1': \"query\" is bytes, expected text"),
        ("a.pkl", pickle.dumps({"1": 5}), "document '1': \"query\" is a number, expected text"),
        ("a.pkl", pickle.dumps({"": ["a"]}), "document '': \"document id\" is empty"),
        ("a.json", b"{", "not valid JSON"),
        ("a.json.gz", b"{}", "cannot read"),
        ("a.jsonl", b'{"_id": "1", "queries": ["a"]}\n{"_id": "1"}\n', r'a\.jsonl:2: no key "queries" or'),
        ("a.jsonl", b'{"queries": ["a"]}\n', r'a\.jsonl:1: no key "_id" or "id"'),
        ("a.jsonl", b'{"_id": "1", "queries": [3]}\n', r'a\.jsonl:1: "query" is a number'),
        ("a.tsv", b"1\ta\n2\n", r"a\.tsv:2: expected an id and a query"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message) as caught:
        list(read_queries_of(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_bad_rows_can_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("1\ta\n2\n3\tb\n")
    skipped = Skipped()
    assert list(read_queries_of(tmp_path / "a.tsv", skip_bad_rows=True, skipped=skipped)) == [
        ("1", ["a"]),
        ("3", ["b"]),
    ]
    assert skipped.total() == 1


def test_a_lookup_keeps_the_order_and_any_text(tmp_path: Path) -> None:
    odd = "\ud800 ' % ? é"
    rows = [("b", ["2", "1"]), (odd, [odd]), ("a", []), ("b", ["3", "1"])]
    lookup = QueryLookup.build(tmp_path / "a #?%.sqlite", rows)
    assert lookup.of("b") == ["2", "1", "3", "1"]
    assert lookup.of(odd) == [odd]
    assert lookup.of("a") == lookup.of("c") == []
    lookup.close()
    again = QueryLookup(tmp_path / "a #?%.sqlite")
    assert again.of(odd) == [odd]
    again.close()
