"""Dense retrieval by faiss, against all inner products and slow aggregation; and without torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("faiss")

from pixnar.base.errors import FileFormatError, MissingExtraError, PixnarError
from pixnar.corpus import open_corpus
from pixnar.evaluation.baselines import DenseRetriever, build_dense, describe, open_retriever, verify
from pixnar.evaluation.baselines.entries import Aggregate, Entries, options
from pixnar.evaluation.measures import reciprocal_ranks
from pixnar.evaluation.queries import read_queries
from pixnar.model.encoder import Encoder
from tests.helpers.fit_corpora import WORDS, write_small
from tests.helpers.tiny_model import save_encoder

QUERIES = [f"{one} {other}" for one, other in zip(WORDS[:20], WORDS[5:], strict=False)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("dense")
    write_small(where / "corpus")
    save_encoder(where / "encoder", texts=[" ".join([*WORDS, "title some text"])])
    for over in ("docids", "text"):
        shared: dict[str, Any] = {"encoder": where / "encoder", "cache": where / "cache"}
        build_dense(where / "corpus", where / over, over=over, aggregate="max", **shared)
    return where


def slow(entries: Entries, scores: list[float], aggregate: Aggregate) -> dict[str, float]:
    """The score of every document, one after the other."""
    own: dict[str, list[float]] = {}
    for row, score in enumerate(scores):
        for document in entries.documents[entries.offsets[row] : entries.offsets[row + 1]]:
            own.setdefault(entries.doc_ids[document], []).append(score)
    if aggregate.kind == "max":
        return {doc_id: max(some) for doc_id, some in own.items()}
    if aggregate.kind == "mean":
        return {doc_id: sum(some) / len(some) for doc_id, some in own.items()}
    scale = aggregate.scale
    return {doc_id: float(np.log(np.exp(scale * np.array(some)).sum()) / scale) for doc_id, some in own.items()}


@pytest.mark.parametrize("over", ["docids", "both"])
@pytest.mark.parametrize(("kind", "scale"), [("mean", 0.0), ("logsumexp", 7.0), ("logsumexp", 300.0)])
@pytest.mark.parametrize("index", ["flat", "hnsw"])
def test_documents_by_all_their_entries(
    home: Path, tmp_path: Path, over: str, kind: str, scale: float, index: str
) -> None:
    shared: dict[str, Any] = {"encoder": home / "encoder", "cache": home / "cache", "index": index}
    build_dense(home / "corpus", tmp_path / "b", over=over, aggregate=kind, scale=scale, **shared)
    entries, texts = Entries.read_apart(open_corpus(home / "corpus"), over)
    assert len(texts) == len(entries) == 200 + 50 * (over == "both")
    encoder = Encoder.load(home / "encoder")
    vectors = encoder.embed(texts).astype(np.float16).astype(np.float32)
    opened = open_retriever(tmp_path / "b")
    assert isinstance(opened, DenseRetriever)
    assert opened.aggregate == Aggregate(kind, scale or 20.0)
    for vector, hits in zip(encoder.embed(QUERIES), opened.search_batch(QUERIES, 7), strict=True):
        near = vectors @ vector
        wanted = slow(entries, near.tolist(), opened.aggregate)
        best = sorted(wanted.values(), reverse=True)[:7]
        assert [hit.score for hit in hits] == pytest.approx(best, abs=2e-4)
        assert [hit.score for hit in hits] == pytest.approx([wanted[hit.id] for hit in hits], abs=2e-4)
        for hit in hits:
            number = list(entries.doc_ids).index(hit.id)
            rows = [
                row
                for row in range(len(entries))
                if number in entries.documents[slice(*entries.offsets[row : row + 2])]
            ]
            nearest = max(rows, key=lambda row: near[row])
            assert hit.docid == entries.spelling(nearest)
    assert opened.search_batch(QUERIES, 0) == [[] for _ in QUERIES]
    assert len(opened.search(QUERIES[0], 1000)) == 50


def test_dev_selects_the_aggregate(home: Path, tmp_path: Path) -> None:
    shared: dict[str, Any] = {"encoder": home / "encoder", "cache": home / "cache"}
    facts = build_dense(home / "corpus", tmp_path / "auto", **shared)
    dev = read_queries(open_corpus(home / "corpus"), "dev")
    figures = {}
    for i, one in enumerate(options()):
        scale = one.scale if one.kind == "logsumexp" else 0.0
        build_dense(home / "corpus", tmp_path / str(i), aggregate=one.kind, scale=scale, **shared)
        found = open_retriever(tmp_path / str(i)).search_batch(dev.texts)
        ranks = reciprocal_ranks([[hit.id for hit in row] for row in found], dev.relevant, 10)
        figures[one] = float(ranks.mean())
    assert len(set(figures.values())) > 2  # there is something to choose
    chosen = open_retriever(tmp_path / "auto")
    assert isinstance(chosen, DenseRetriever)
    assert figures[chosen.aggregate] == max(figures.values()) == pytest.approx(facts["dev"]["MRR@10"])
    assert facts["dev"]["MRR@10 cross-validated"] <= facts["dev"]["MRR@10"]
    assert describe(tmp_path / "auto") == f"dense (docids, {chosen.aggregate}, zero-shot)"
    manifest = json.loads((tmp_path / "auto" / "manifest.json").read_text())
    assert manifest["options"]["aggregate"] == chosen.aggregate.to_dict()
    write_small(tmp_path / "corpus", splits=("train",))
    build_dense(tmp_path / "corpus", tmp_path / "no dev", encoder=home / "encoder")
    assert describe(tmp_path / "no dev") == "dense (docids, max, zero-shot)"


@pytest.mark.parametrize("over", ["docids", "text"])
def test_the_best_of_all_inner_products(home: Path, over: str) -> None:
    entries, texts = Entries.read(open_corpus(home / "corpus"), over)
    encoder = Encoder.load(home / "encoder")
    vectors = encoder.embed(texts).astype(np.float16).astype(np.float32)  # as the cache keeps them
    opened = open_retriever(home / over)
    for query, vector, hits in zip(QUERIES, encoder.embed(QUERIES), opened.search_batch(QUERIES, 10), strict=True):
        wanted = entries.ranked(np.arange(len(texts)), vectors @ vector, 10)
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted], abs=1e-4)
        assert {hit.id for hit in hits[:5]} <= {hit.id for hit in wanted}
        assert [hit.id for hit in opened.search(query, 10)] == [hit.id for hit in hits]
        assert all((hit.docid != "") == (over == "docids") for hit in hits)
    assert len(opened.search("balin", 1000)) == 50  # every document, however deep
    assert len({hit.id for hit in opened.search("balin", 49)}) == 49
    assert opened.search("balin", 0) == []
    assert opened.search_batch([]) == []


def test_a_query_that_is_a_docid_finds_all_it_names(home: Path) -> None:
    entries, texts = Entries.read(open_corpus(home / "corpus"), "docids")
    for row in range(0, len(texts), 17):
        named = {entries.doc_ids[i] for i in entries.documents[entries.offsets[row] : entries.offsets[row + 1]]}
        hits = open_retriever(home / "docids").search(texts[row].upper(), len(named))
        assert {hit.id for hit in hits} == named
        assert hits[0].score == pytest.approx(1, abs=1e-3)


def test_a_graph_is_near(home: Path, tmp_path: Path) -> None:
    build_dense(
        home / "corpus", tmp_path / "g", encoder=home / "encoder", index="hnsw", cache=home / "cache", aggregate="max"
    )
    found, wanted = (open_retriever(path).search_batch(QUERIES) for path in (tmp_path / "g", home / "docids"))
    same = [one == other for rows in zip(found, wanted, strict=True) for one, other in zip(*rows, strict=True)]
    assert np.mean(same) > 0.9


def test_searched_without_torch(home: Path) -> None:
    code = (
        "import sys; from pixnar.evaluation.baselines import open_retriever\n"
        f"print(open_retriever({str(home / 'docids')!r}).search('balin')[0].id, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "False"


def test_damage_is_told_in_one_line(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(home / "docids", folder)
    names = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    assert verify(folder) == len(names) == 6
    for path in names:
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(FileFormatError, match="is missing"):
            open_retriever(folder)
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 0x55
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            verify(folder)
        with pytest.raises(FileFormatError) as caught:
            open_retriever(folder)
        assert "\n" not in str(caught.value)
        path.write_bytes(whole)
    other, _ = Entries.read(open_corpus(home / "corpus"), "text")
    other.save(folder)
    with pytest.raises(FileFormatError, match=r"200 vectors of 32 numbers, the other files have 50 of 32"):
        DenseRetriever.load(folder)
    (folder / "vectors.faiss").write_bytes(b"nothing")
    with pytest.raises(FileFormatError, match=r"vectors\.faiss is damaged"):
        DenseRetriever.load(folder)


def test_what_is_wrong(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = home / "corpus"
    with pytest.raises(PixnarError, match="over 'joined' is not possible for dense"):
        build_dense(corpus, tmp_path / "x", over="joined")
    with pytest.raises(PixnarError, match="aggregate 'sum' is not possible"):
        build_dense(corpus, tmp_path / "x", aggregate="sum")
    with pytest.raises(PixnarError, match="scale -1 is not possible"):
        build_dense(corpus, tmp_path / "x", scale=-1)
    with pytest.raises(PixnarError, match="index 'tree' is not possible"):
        build_dense(corpus, tmp_path / "x", index="tree")
    with pytest.raises(PixnarError, match="cannot load the encoder"):
        build_dense(corpus, tmp_path / "x", encoder=tmp_path / "nothing")
    with pytest.raises(PixnarError, match="reads at most 128 word pieces, not 200"):
        build_dense(corpus, tmp_path / "x", encoder=home / "encoder", max_pieces=200)
    with pytest.raises(TypeError, match="list of queries"):
        open_retriever(home / "docids").search_batch("tea")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"pixnar\[baselines\]"):
        build_dense(corpus, tmp_path / "x", encoder=home / "encoder")
    assert not list(tmp_path.iterdir())


def test_faiss_leaves_the_threads_of_others_alone(home: Path, tmp_path: Path) -> None:
    build_dense(home / "corpus", tmp_path / "b", encoder=home / "encoder", cache=home / "cache")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    open_retriever(tmp_path / "b", threads=2).search("balin")
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_dev_selects_docids_or_both(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: dict[str, Any] = {"encoder": home / "encoder", "cache": home / "cache"}
    found = {
        over: build_dense(home / "corpus", tmp_path / over, over=over, **shared) for over in ("docids", "both", "auto")
    }
    best = max(found["docids"]["dev"]["MRR@10"], found["both"]["dev"]["MRR@10"])
    assert found["auto"]["dev"]["MRR@10"] == best
    assert "MRR@10 cross-validated" not in found["auto"]["dev"]
    verify(tmp_path / "auto")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["auto", "both", "docids"]
    assert {path.name for path in (tmp_path / "auto").iterdir()} == {
        path.name for path in (tmp_path / "both").iterdir()
    }
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    build_dense(home / "corpus", ".", **shared)
    verify(tmp_path / "here")
