"""A corpus with text only goes through `fit` end to end; the corpus itself stays as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pixnar.base.errors import PixnarError
from pixnar.base.storage import read_container
from pixnar.corpus import Document, Qrel, Query
from pixnar.index import Index
from pixnar.pipeline import FitReport, fit
from pixnar.recipe import Recipe, override
from tests.helpers.fit_corpora import WORDS, settings
from tests.helpers.text_corpora import passages, write_text_only
from tests.helpers.tiny_model import save_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoder"), texts=WORDS)


def made(corpus: Path, output: Path, wish: list[str], said: list[str]) -> FitReport:
    cache = output.parent / "cache"
    return fit(corpus, output, override(Recipe(), wish), cache=cache, threads=1, say=said.append, keep_work=True)


def test_text_and_dev_queries(tmp_path: Path, encoder: Path) -> None:
    documents = passages(40)
    queries = [Query(f"q{i}", " ".join(document.text.split()[3:7])) for i, document in enumerate(documents)]
    dev = [Qrel(f"q{i}", document.doc_id, 1) for i, document in enumerate(documents)]
    corpus = write_text_only(tmp_path / "corpus", documents, queries, dev)
    before = {path.name: path.read_bytes() for path in corpus.iterdir() if path.is_file()}
    said: list[str] = []
    report = made(corpus, tmp_path / "index", settings(encoder, naming__sentences=2, naming__phrases=3), said)
    assert sum("has none, so they are made of its text: titles, sentences, phrases" in line for line in said) == 1
    assert {path.name: path.read_bytes() for path in corpus.iterdir() if path.is_file()} == before
    rows = [json.loads(line) for line in (tmp_path / "index/work/docids.jsonl").read_text().splitlines()]
    assert report.facts["documents"] == 40
    assert report.facts["docids"] == len({row["docid"].lower() for row in rows})
    assert max(sum(row["_id"] == document.doc_id for row in rows) for document in documents) <= 6
    assert report.dev["with fusion"]["MRR@10"] > 0.9
    index = Index.load(tmp_path / "index")
    assert index.verify() > 5
    hit = index.search(queries[7].text, k=1)[0]
    assert hit.id == "d0007"
    assert index.manifest["corpus"] == str(corpus)


def test_documents_and_nothing_else(tmp_path: Path, encoder: Path) -> None:
    documents = passages(40)
    corpus = write_text_only(tmp_path / "corpus", documents)
    said: list[str] = []
    no_noise = settings(encoder, fuse__text_vectors=0)  # the vectors of a random encoder
    report = made(corpus, tmp_path / "index", no_noise, said)
    assert report.dev == {}
    assert any("no dev split" in line for line in said)
    assert os.listdir(corpus) == ["corpus.jsonl"]
    index = Index.load(tmp_path / "index")
    queries = [" ".join(document.text.split()[3:7]) for document in documents]
    found = [[hit.id for hit in index.search(query, k=3)] for query in queries]
    assert index.ranker.lexical is not None
    assert index.ranker.fusion is not None
    assert index.ranker.fusion.weights == {"docids": 1.0, "lexical": 3.0}
    by_words = [int(index.ranker.lexical.score(query).argmax()) for query in queries]
    wish = settings(encoder, fuse__text_vectors=0, naming__sentences=1, naming__phrases=9, train__steps=1)
    made(corpus, tmp_path / "other", wish, [])
    mine, theirs = tmp_path / "index" / "lexical.pixnar", tmp_path / "other" / "lexical.pixnar"
    lengths = [read_container(path, "lexical", 1).arrays["lengths"].tolist() for path in (mine, theirs)]
    assert lengths[0] == lengths[1]  # what the text says counts once, whatever the docids repeat
    tables = [(tmp_path / name / "docids" / "table.pixnar").read_bytes() for name in ("index", "other")]
    assert tables[0] != tables[1]
    numbering = index.table.snapshot().numbering
    named = index.table.snapshot().doc_ids(numbering.numbers(np.array(by_words)).tolist())
    assert sum(doc_id == document.doc_id for doc_id, document in zip(named, documents, strict=True)) > 35
    assert sum(document.doc_id in ids for ids, document in zip(found, documents, strict=True)) > 35


def test_an_empty_file_of_docids_is_none(tmp_path: Path, encoder: Path) -> None:
    corpus = write_text_only(tmp_path / "corpus", passages(5))
    (corpus / "docids.jsonl").write_text("")
    report = made(corpus, tmp_path / "index", settings(encoder, train__steps=1), [])
    assert report.facts["documents"] == 5
    assert (corpus / "docids.jsonl").read_text() == ""


def test_neither_docids_nor_text(tmp_path: Path, encoder: Path) -> None:
    corpus = write_text_only(tmp_path / "corpus", [Document("d", "", "", {})])
    with pytest.raises(PixnarError, match=r"no docid came of it; its documents have neither titles nor text"):
        made(corpus, tmp_path / "index", settings(encoder), [])
    assert not (tmp_path / "index").exists()
