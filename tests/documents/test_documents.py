"""The file of documents: everything comes back, ids are found whatever their hashes, damage is one clear line."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import read_container, write_container
from pixnar.corpus.records import Document
from pixnar.documents import documents as module
from pixnar.documents.documents import Documents, byte_order, write_documents
from pixnar.documents.filters import parse

any_text = st.text(st.characters(), max_size=12)  # lone surrogates included
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=10,
)
any_documents = st.lists(
    st.builds(Document, any_text, any_text, st.just(""), st.dictionaries(any_text, any_json, max_size=4)),
    max_size=80,
    unique_by=lambda document: document.doc_id,
)


def some_documents(count: int) -> list[Document]:
    rng = random.Random(count)
    return [
        Document(
            f"d{n * 7919 % 10_007}", f"Title {n}", "text", {"n": n, "lang": rng.choice(["de", "en"]), "o": {"x": n}}
        )
        for n in range(count)
    ]


def kept(document: Document) -> Document:
    return document._replace(text="")


def error_of(ask: Callable[[Any], object], argument: object) -> str | None:
    """What a FileFormatError said, in one line; any other error is passed on."""
    try:
        ask(argument)
    except FileFormatError as error:
        return " // ".join(str(error).splitlines())
    return None


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_documents)
def test_round_trip(tmp_path: Path, given_documents: list[Document]) -> None:
    path = tmp_path / "docs"
    assert write_documents(path, iter(given_documents), threads=1) == len(given_documents)
    found = Documents.open(path)
    assert len(found) == len(given_documents)
    assert list(found) == given_documents
    assert [found.record(n) for n in range(len(found))] == given_documents
    ids = [document.doc_id for document in given_documents]
    assert [found.doc_id(n) for n in range(len(ids))] == found.doc_ids(range(len(ids))) == ids
    assert found.numbers(ids).tolist() == list(range(len(ids)))
    assert found.numbers([doc_id + "!" for doc_id in ids if doc_id + "!" not in ids]).tolist() == [
        -1 for doc_id in ids if doc_id + "!" not in ids
    ]
    by_bytes = sorted(ids, key=lambda doc_id: doc_id.encode("utf-8", "surrogatepass"))
    assert found.rank.tolist() == [by_bytes.index(doc_id) for doc_id in ids]
    assert found.rank.dtype == np.uint32
    Documents.check(path)


@given(st.lists(st.binary(max_size=5)))
def test_byte_order(strings: list[bytes]) -> None:
    borders = np.cumsum([0, *map(len, strings)]).astype(np.uint64)
    order = byte_order(b"".join(strings), borders).tolist()
    assert [strings[n] for n in order] == sorted(strings)
    assert sorted(order) == list(range(len(strings)))


def test_many_documents(tmp_path: Path) -> None:
    documents = some_documents(3_000)
    write_documents(tmp_path / "a", documents)
    found = Documents.open(tmp_path / "a")
    numbers = [2_999, 0, 5, 5, 1_234]
    assert found.records(numbers) == [kept(documents[n]) for n in numbers]
    assert found.number(documents[1_234].doc_id) == 1_234
    assert found.number("nobody") is None
    assert found.numbers(["nobody", documents[7].doc_id, ""]).tolist() == [-1, 7, -1]
    assert found.numbers([]).tolist() == []
    mask = parse('lang = "de" and n >= 2990').mask(found.columns, len(found))
    wanted = [n for n in range(2_990, 3_000) if documents[n].metadata["lang"] == "de"]
    assert np.flatnonzero(mask).tolist() == wanted
    write_documents(tmp_path / "b", iter(documents), threads=1)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("number", [-1, 50, 2**65])
def test_outside(tmp_path: Path, number: int) -> None:
    write_documents(tmp_path / "docs", some_documents(50))
    found = Documents.open(tmp_path / "docs")
    for ask in (found.record, found.doc_id, lambda n: found.doc_ids([n]), lambda n: found.records([0, n])):
        with pytest.raises(IndexError, match="no record"):
            ask(number)


@pytest.mark.parametrize("buckets", [1, 3])
def test_ids_with_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int) -> None:
    monkeypatch.setattr(module, "_hash", lambda data: xxhash.xxh3_64_intdigest(data) % buckets + 2**64 - buckets)
    documents = some_documents(100)
    write_documents(tmp_path / "docs", documents)
    found = Documents.open(tmp_path / "docs")
    assert found.numbers([document.doc_id for document in documents]).tolist() == list(range(100))
    assert [found.number(document.doc_id) for document in documents] == list(range(100))
    assert found.numbers(["x", "y", documents[3].doc_id, "z"]).tolist() == [-1, -1, 3, -1]
    with pytest.raises(PixnarError, match=r"numbers 1 and 101\) have the id 'd0'"):
        write_documents(tmp_path / "docs", [*documents, documents[0]])


def test_an_id_twice_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match=r"two documents \(numbers 3 and 5\) have the id 'c'"):
        write_documents(tmp_path / "docs", [Document(i, "", "", {}) for i in "abcdc"])
    assert not list(tmp_path.iterdir())


def test_a_failing_source_leaves_nothing(tmp_path: Path) -> None:
    def source() -> Iterator[Document]:
        yield from some_documents(500)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_documents(tmp_path / "docs", source())
    assert not list(tmp_path.iterdir())


def test_dates_become_text_and_what_json_lacks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "docs"
    write_documents(path, [Document("a", "", "", {"day": datetime.date(2024, 2, 29)})])
    found = Documents.open(path)
    assert found.record(0).metadata == {"day": "2024-02-29"}
    assert parse("day >= '2024' and day < '2025'").mask(found.columns, 1).tolist() == [True]
    loop: dict[str, Any] = {}
    loop["x"] = loop
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for bad in ({"x": {1, 2}}, loop, {"x": deep}, {"x": 10**5_000}):
        with pytest.raises(PixnarError, match="metadata of document 'b' is no JSON") as caught:
            write_documents(path, [Document("b", "", "", bad)])
        assert "\n" not in str(caught.value)
    assert len(Documents.open(path)) == 1


def test_where_nothing_can_be_written_nothing_is_read(tmp_path: Path) -> None:
    def source() -> Iterator[Document]:
        raise AssertionError("asked for a document")
        yield

    with pytest.raises(PixnarError, match="does not exist"):
        write_documents(tmp_path / "no" / "docs", source())


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    write_container(tmp_path / "x", "vocab", 1, {}, {})
    with pytest.raises(FileFormatError, match="holds a vocab, not a docs"):
        Documents.open(tmp_path / "x")
    write_container(tmp_path / "x", "docs", 1, {}, {})
    with pytest.raises(FileFormatError, match="damaged or incomplete"):
        Documents.open(tmp_path / "x")


def test_every_flipped_byte_is_noticed_by_check_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "docs"
    documents = some_documents(150)
    write_documents(path, documents)
    good = path.read_bytes()
    rng = random.Random(5)
    condition = parse('lang in ("de", "en", "fr") and not (n < 20 or lang > "de") or missing n')
    for position in [*range(64), *rng.sample(range(64, len(good)), 700)]:
        bad = bytearray(good)
        bad[position] ^= rng.randrange(1, 256)
        path.write_bytes(bad)
        unnoticed = error_of(Documents.check, path) is None
        assert not unnoticed or good[position] == 0  # between two arrays
        if error_of(Documents.open, path):
            continue
        found = Documents.open(path)
        for ask in (
            lambda found: list(found),
            lambda found: found.records(range(150)),
            lambda found: found.numbers([document.doc_id for document in documents]),
            lambda found: condition.mask(found.columns, 150),
            lambda found: parse("n = 1").mask(found.columns, 150),
        ):
            error = error_of(ask, found)
            assert error is None or error.startswith(f"{path} is damaged or incomplete (")


def test_parts_of_different_files_do_not_fit(tmp_path: Path) -> None:
    write_documents(tmp_path / "a", some_documents(50))
    write_documents(tmp_path / "b", some_documents(60))
    (one, meta), (other, _) = (
        (found.arrays, found.meta) for found in (read_container(tmp_path / name, "docs", 2) for name in "ab")
    )
    for name in ("rank", "hashes", "order"):
        write_container(tmp_path / "c", "docs", 2, meta, {**one, name: other[name]})
        with pytest.raises(FileFormatError, match="different numbers of documents"):
            Documents.open(tmp_path / "c")
    write_container(tmp_path / "c", "docs", 2, meta | {"origin": {"ids": "", "size": 49}}, one)
    with pytest.raises(FileFormatError, match="different numbers of documents"):
        Documents.open(tmp_path / "c")
    columns = {name: part for name, part in other.items() if name.startswith("columns.")}
    write_container(tmp_path / "c", "docs", 2, meta, {**one, **columns})
    with pytest.raises(FileFormatError, match="60 values for 50 documents"):
        parse("n = 1").mask(Documents.open(tmp_path / "c").columns, 50)


def test_a_file_of_an_earlier_release_says_how_to_build_it_again(tmp_path: Path) -> None:
    write_documents(tmp_path / "a", some_documents(5))
    write_container(tmp_path / "b", "docs", 1, {"documents": 5}, read_container(tmp_path / "a", "docs", 2).arrays)
    with pytest.raises(FileFormatError, match="is of an earlier release: run pixnar fit or pixnar table build again"):
        Documents.open(tmp_path / "b")


def test_what_a_table_was_built_of(tmp_path: Path) -> None:
    documents = list(some_documents(5))
    write_documents(tmp_path / "a", documents)
    built = Documents.open(tmp_path / "a")
    assert (built.origin.size, built.origin.numbers, built.by_origin) == (5, None, None)
    write_documents(tmp_path / "again", iter(documents))
    assert Documents.open(tmp_path / "again").origin == built.origin
    write_documents(tmp_path / "turned", documents[::-1])
    assert Documents.open(tmp_path / "turned").origin.ids != built.origin.ids
    numbers = np.array([0, 3, 4, -1])  # documents 1 and 2 went, one came
    write_documents(tmp_path / "b", documents[:4], origin=built.origin._replace(numbers=numbers))
    kept = Documents.open(tmp_path / "b")
    assert (kept.origin.ids, kept.origin.size) == (built.origin.ids, 5)
    assert kept.by_origin is not None
    assert kept.by_origin.tolist() == [0, -1, -1, 1, 2]
    write_documents(tmp_path / "c", documents[:4], origin=built.origin._replace(numbers=numbers + 9))
    with pytest.raises(FileFormatError, match="fewer documents than it names"):
        _ = Documents.open(tmp_path / "c").by_origin
