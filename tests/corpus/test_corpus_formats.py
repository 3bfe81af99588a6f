"""Every format gives the same records, from plain and compressed files."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import ir_datasets
import pyarrow
import pyarrow.parquet
import pytest

from pixnar.base.errors import CorpusError, MissingExtraError
from pixnar.corpus import Corpus, DocidRow, Document, Qrel, Query, open_corpus

DOCUMENTS = [
    Document("d1", "Tea", "A hot drink", {"url": "https://a.example"}),
    Document("d2", "", "Sömething «cold»", {"url": "https://b.example"}),
]
DOCIDS = [DocidRow("d1", "brewed leaves"), DocidRow("d1", "チャ"), DocidRow("d2", "brewed leaves")]
QUERIES = [Query("q1", "what to drink"), Query("q2", "cold")]
QRELS = [Qrel("q1", "d1", 1), Qrel("q1", "d2", 0), Qrel("q2", "d2", 2)]


def put(path: Path, lines: list[str], packed: bool = False) -> None:
    data = "".join(line + "\n" for line in lines).encode()
    path.parent.mkdir(exist_ok=True, parents=True)
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(data))
    else:
        path.write_bytes(data)


def beir(folder: Path, packed: bool = False) -> None:
    documents = [{"_id": row.doc_id, "title": row.title, "text": row.text, **row.metadata} for row in DOCUMENTS]
    put(folder / "corpus.jsonl", [json.dumps(row, ensure_ascii=False) for row in documents], packed)
    put(folder / "docids.jsonl", [json.dumps({"_id": i, "docid": text}) for i, text in DOCIDS], packed)
    put(folder / "queries.jsonl", [json.dumps({"_id": i, "text": text}) for i, text in QUERIES], packed)
    put(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *("\t".join(map(str, r)) for r in QRELS)], packed)


def marco(folder: Path, packed: bool = False) -> None:
    rows = [f"{row.doc_id}\t{row.metadata['url']}\t{row.title}\t{row.text}" for row in DOCUMENTS]
    put(folder / "collection.tsv", rows, packed)
    put(folder / "docids.tsv", ["\t".join(row) for row in DOCIDS], packed)
    put(folder / "queries.tsv", ["\t".join(row) for row in QUERIES], packed)
    put(folder / "qrels.tsv", [f"{q} 0 {d} {score}" for q, d, score in QRELS], packed)


def table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def parquet(folder: Path, parts: bool = False) -> None:
    documents = [{"_id": row.doc_id, "title": row.title, "text": row.text, **row.metadata} for row in DOCUMENTS]
    if parts:
        for part, row in enumerate(documents):
            table(folder / "corpus" / f"part-{part}.parquet", [row])
        table(folder / "qrels" / "test" / "0.parquet", [{"query_id": q, "doc_id": d, "score": s} for q, d, s in QRELS])
    else:
        table(folder / "corpus.parquet", documents)
        table(folder / "qrels" / "test.parquet", [{"query-id": q, "corpus-id": d, "score": s} for q, d, s in QRELS])
    table(folder / "docids.parquet", [{"_id": i, "docid": text} for i, text in DOCIDS])
    table(folder / "queries.parquet", [{"_id": i, "text": text} for i, text in QUERIES])


def expect_all(corpus: Corpus) -> None:
    assert list(corpus.documents()) == DOCUMENTS
    assert list(corpus.docids()) == DOCIDS
    assert list(corpus.queries()) == QUERIES
    assert corpus.splits() == ["test"]
    assert list(corpus.qrels("test")) == QRELS
    assert corpus.skipped.total() == 0


@pytest.mark.parametrize("make", [beir, marco, parquet])
@pytest.mark.parametrize("variant", [False, True])
def test_every_format_gives_the_same_records(make: Any, variant: bool, tmp_path: Path) -> None:
    make(tmp_path, variant)
    expect_all(open_corpus(tmp_path))
    expect_all(open_corpus(str(tmp_path), check_ids=False))


def test_docids_and_judgements_can_be_read_first(tmp_path: Path) -> None:
    beir(tmp_path)
    assert list(open_corpus(tmp_path).docids()) == DOCIDS
    assert list(open_corpus(tmp_path).qrels("test")) == QRELS


def test_byte_order_mark_line_ends_and_trailing_blank_lines_are_tolerated(tmp_path: Path) -> None:
    beir(tmp_path)
    for file in tmp_path.rglob("*.*l"):
        data = file.read_bytes().replace(b"\n", b"\r\n")
        file.write_bytes(b"\xef\xbb\xbf" + data + b"\r\n  \n\n")
    (tmp_path / "qrels" / "test.tsv").write_text("\n".join("\t".join(map(str, row)) for row in QRELS))
    expect_all(open_corpus(tmp_path))


def test_compressed_content_is_known_without_its_name(tmp_path: Path) -> None:
    beir(tmp_path)
    file = tmp_path / "docids.jsonl"
    file.write_bytes(gzip.compress(file.read_bytes()))
    expect_all(open_corpus(tmp_path))


def test_integer_ids_become_text(tmp_path: Path) -> None:
    put(tmp_path / "corpus.jsonl", ['{"_id": 7, "text": "x"}', '{"_id": "8", "text": "y", "title": null}'])
    put(tmp_path / "docids.jsonl", ['{"_id": 7, "docid": "a"}', '{"_id": "8", "docid": "b"}'])
    corpus = open_corpus(tmp_path)
    assert [row.doc_id for row in corpus.documents()] == ["7", "8"]
    assert list(corpus.docids()) == [("7", "a"), ("8", "b")]


def test_lone_surrogates_come_through(tmp_path: Path) -> None:
    put(tmp_path / "corpus.jsonl", [r'{"_id": "\ud800", "text": "\udfff"}'])
    put(tmp_path / "docids.jsonl", [r'{"_id": "\ud800", "docid": "x\ud83d"}', r'{"_id": "\ud800", "docid": "\ud83d"}'])
    corpus = open_corpus(tmp_path)
    assert list(corpus.documents()) == [Document("\ud800", "", "\udfff", {})]
    assert [row.docid for row in corpus.docids()] == ["x\ud83d", "\ud83d"]


def test_marco_splits_and_queries_shipped_twice(tmp_path: Path) -> None:
    put(tmp_path / "collection.tsv", ["d1\tone text"])
    put(tmp_path / "queries.dev.tsv", ["1\ta", "2\tb"], packed=True)
    put(tmp_path / "queries.dev.small.tsv", ["2\tb"])
    put(tmp_path / "queries.train.tsv", ["3\tc"])
    put(tmp_path / "qrels.dev.small.tsv", ["2\t0\td1\t1"])
    put(tmp_path / "qrels.train.tsv", ["3\td1"])
    corpus = open_corpus(tmp_path)
    assert corpus.splits() == ["train", "dev.small"]
    assert sorted(corpus.queries()) == [("1", "a"), ("2", "b"), ("3", "c")]
    assert list(corpus.qrels("train")) == [("3", "d1", 1)]
    put(tmp_path / "queries.test.tsv", ["2\tanother text"])
    with pytest.raises(CorpusError, match=r"queries\.test\.tsv:1: duplicate query id '2'"):
        list(open_corpus(tmp_path).queries())


def irds_dataset(tmp_path: Path, name: str) -> None:
    put(tmp_path / "docs.tsv", ["d1\tA hot drink", "d2\tcold"])
    put(tmp_path / "queries.tsv", ["q1\twhat to drink"])
    put(tmp_path / "qrels.trec", ["q1 0 d1 2"])
    dataset = ir_datasets.create_dataset(
        docs_tsv=str(tmp_path / "docs.tsv"),
        queries_tsv=str(tmp_path / "queries.tsv"),
        qrels_trec=str(tmp_path / "qrels.trec"),
    )
    ir_datasets.registry.register(name, dataset)


@pytest.fixture
def registered(tmp_path: Path) -> Any:
    name = f"pixnar-test-{tmp_path.name}/dev"
    irds_dataset(tmp_path, name)
    yield name
    ir_datasets.registry._registered.pop(name)


def test_ir_datasets(registered: str, tmp_path: Path) -> None:
    corpus = open_corpus(f"irds:{registered}")
    assert list(corpus.documents()) == [("d1", "", "A hot drink", {}), ("d2", "", "cold", {})]
    assert list(corpus.queries()) == [("q1", "what to drink")]
    assert corpus.splits() == ["dev"]
    assert list(corpus.qrels("dev")) == [("q1", "d1", 2)]
    with pytest.raises(CorpusError, match=r"irds:.* has no docids; add them with: pixnar corpus convert"):
        corpus.docids()
    put(tmp_path / "more" / "docids.tsv", ["d2\tice"])
    with_docids = open_corpus(f"irds:{registered}", docids=tmp_path / "more")
    assert list(with_docids.docids()) == [("d2", "ice")]


def test_ir_datasets_errors_are_one_line(registered: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="knows no collection 'no-such-collection'"):
        open_corpus("irds:no-such-collection")
    put(tmp_path / "docs.tsv", ["d1\ttoo\tmany"])
    with pytest.raises(CorpusError, match=rf"irds:{registered}/docs: ir_datasets cannot read it \(expected 2 fields"):
        list(open_corpus(f"irds:{registered}", skip_bad_rows=True).documents())
    put(tmp_path / "docs.tsv", [*(f"d{i}\ta" for i in range(5000)), "d1\tb"])
    with pytest.raises(CorpusError, match=rf"irds:{registered}/docs:5001: duplicate document id 'd1'"):
        list(open_corpus(f"irds:{registered}").documents())


@pytest.mark.parametrize("missing", ["ir_datasets", "pyarrow"])
def test_a_missing_library_names_the_extra(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pixnar\[data\]'"):
        list(open_corpus("irds:vaswani" if missing == "ir_datasets" else tmp_path).documents())


@pytest.mark.parametrize("name", ["docids.jsonl", "docids.tsv.gz", "docids.parquet"])
def test_docids_from_elsewhere(name: str, tmp_path: Path) -> None:
    beir(tmp_path / "corpus")
    other = tmp_path / name
    rows = {".jsonl": ['{"_id": "d2", "docid": "ice"}'], ".tsv.gz": ["d2\tice"]}
    if name.endswith(".parquet"):
        table(other, [{"_id": "d2", "docid": "ice"}])
    else:
        put(tmp_path / name.removesuffix(".gz"), rows[name.removeprefix("docids")], packed=name.endswith(".gz"))
    for where in (other, tmp_path):
        assert list(open_corpus(tmp_path / "corpus", docids=where).docids()) == [("d2", "ice")]


def test_progress_counts_bytes_on_disk(tmp_path: Path) -> None:
    beir(tmp_path, packed=True)
    calls: list[tuple[str, int, int]] = []
    list(open_corpus(tmp_path).docids(lambda *call: calls.append(call)))
    size = (tmp_path / "docids.jsonl.gz").stat().st_size
    assert calls[-1] == ("docids", size, size)
    assert {stage for stage, _, _ in calls} == {"document ids", "docids"}
    assert all(done <= total for _, done, total in calls)
    calls.clear()
    parquet(tmp_path / "parquet", True)
    list(open_corpus(tmp_path / "parquet").documents(lambda *call: calls.append(call)))
    assert calls[-1][1] == calls[-1][2] == sum(p.stat().st_size for p in (tmp_path / "parquet/corpus").iterdir())
    assert calls == sorted(calls)
