"""Training pairs: targets come from the input's document and never from the input itself; shares are as configured."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pixnar.base.errors import PixnarError
from pixnar.corpus import DocidRow, Document, Qrel, Query, open_corpus, write_corpus
from pixnar.evaluation.baselines.autoregressive.collection import (
    AFTER,
    DOCID,
    TITLE,
    Collection,
    Pieces,
    Tokens,
    TokenTexts,
)
from pixnar.evaluation.baselines.autoregressive.ids import END, naive_ids
from pixnar.evaluation.baselines.autoregressive.pairs import (
    BODY,
    DENOISING,
    QUERY,
    SPAN,
    TITLES,
    WHOLE,
    IdPairs,
    Pair,
    Shares,
    ViewPairs,
)
from pixnar.train.data import read_inputs
from tests.helpers.fit_corpora import WORDS

DOCUMENTS, PAIRS = 12, 3000
_NUMBER = {word: 100 + i for i, word in enumerate((*WORDS, *(f"{kind}{i}" for kind in "tqd" for i in range(99))))}


def pieces(texts: list[str]) -> list[list[int]]:
    """Each word is a piece; that suffices here."""
    return [[_NUMBER[word] for word in text.split()] for text in texts]


_pieces: Pieces = pieces  # type: ignore[assignment]


def write(folder: Path) -> None:
    """Documents with text that has the first docid inside, train and dev queries."""
    rng = np.random.default_rng(5)

    def words(count: int) -> str:
        return " ".join(WORDS[i] for i in rng.integers(0, len(WORDS), count))

    documents, rows, queries, qrels = [], [], [], {"train": [], "dev": []}  # type: ignore[var-annotated]
    for i in range(DOCUMENTS):
        docids = [words(4), words(6), words(15)]
        rows += [DocidRow(f"d{i:02}", docid) for docid in docids]
        documents.append(Document(f"d{i:02}", f"t{i} {words(2)}", f"{words(9)} {docids[0]} {words(20)}", {}))
        for split, kind in (("train", "q"), ("dev", "d")):
            queries.append(Query(f"{split}{i}", f"{kind}{i} {words(2)}"))
            qrels[split].append(Qrel(f"{split}{i}", f"d{i:02}", 1))
    write_corpus(folder, documents, rows, queries, qrels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("pairs") / "corpus"
    write(where)
    return where


def read(folder: Path, over: str = "both") -> tuple[Collection, TokenTexts]:
    corpus = open_corpus(folder)
    collection = Collection.read(corpus, read_inputs(corpus), over)
    return collection, TokenTexts.of(collection, _pieces)


def inside(part: Tokens, whole: Tokens) -> list[int]:
    return [i for i in range(len(whole) - len(part) + 1) if whole[i : i + len(part)] == part]


def drawn(source: ViewPairs) -> list[tuple[Pair, int, int]]:
    """Pairs with the document and the number of the input; denoising has changed its text, so those have none."""
    known = {text: (document, docid) for text, document, docid in source.collection.inputs()}
    found = [source.pair(number) for number in range(PAIRS)]
    return [(pair, *known[pair.text]) for pair in found if pair.view != DENOISING]


@pytest.mark.parametrize("over", ["both", "docids", "text"])
def test_spans_are_parts_of_the_document_and_not_of_the_input(folder: Path, over: str) -> None:
    collection, texts = read(folder, over)
    indexed = texts.documents(collection)
    spans = [row for row in drawn(ViewPairs(collection, texts, Shares(), seed=1)) if row[0].view == BODY]
    assert len(spans) > 500
    from_text = 0
    for pair, document, docid in spans:
        assert 1 <= len(pair.target) <= SPAN
        assert min(pair.target) >= texts.pieces.first  # no marker
        assert inside(pair.target, indexed[document])
        own = texts.docids[docid] if docid >= 0 else texts.queries[-1 - docid]
        body = texts.bodies[document]
        at = inside(pair.target, body)
        from_text += bool(at)
        siblings = [texts.docids[i] for i in collection.named[document] if i != docid]
        if over != "text" and any(inside(pair.target, sibling) for sibling in siblings):
            continue
        stands = {place + i for place in inside(own, body) for i in range(len(own))}
        assert any(not stands & set(range(place, place + len(pair.target))) for place in at)
    assert (from_text > 0) == (over != "docids")


def test_spans_of_a_text_prefer_what_is_in_the_input(folder: Path) -> None:
    collection, texts = read(folder, "text")
    source = ViewPairs(collection, texts, Shares(body=1, title=0, query=0, denoising=0))
    shared = [
        len(set(pair.target) & set(texts.docids[docid]))
        for pair, _, docid in drawn(source)
        if docid >= 0 and len(pair.target) == SPAN
    ]
    uniform = []
    for _, document, docid in collection.inputs():
        body = texts.bodies[document]
        uniform += [len(set(body[i : i + SPAN]) & set(texts.docids[docid])) for i in range(len(body) - SPAN + 1)]
    assert np.mean(shared) > 0
    assert np.mean(shared) > 0.8 * np.mean(uniform)  # though the docid itself, which is in the text, is left out


def test_titles_and_docids_are_whole_and_of_the_same_document(folder: Path) -> None:
    collection, texts = read(folder)
    title, docid_marker, after = (texts.pieces.marker(marker) for marker in (TITLE, DOCID, AFTER))
    views: Counter[int] = Counter()
    for pair, document, docid in drawn(ViewPairs(collection, texts, Shares())):
        views[pair.view] += 1
        if pair.view == TITLES:
            assert pair.target == (title, *texts.titles[document], after)
        elif pair.view == QUERY:
            others = [i for i in collection.named[document] if i != docid]
            assert pair.target in [(docid_marker, *texts.docids[i], after) for i in others]
    assert min(views[TITLES], views[QUERY]) > 200


def test_a_damaged_docid_is_repaired(folder: Path) -> None:
    collection, texts = read(folder)
    source = ViewPairs(collection, texts, Shares(body=0, title=0, query=0, denoising=1), mask="[MASK]")
    changed: Counter[str] = Counter()
    for number in range(PAIRS):
        pair = source.pair(number)
        if pair.view != DENOISING:  # of a train query nothing is repaired; no other view has a share
            pytest.fail("a view without a share was drawn")
        words, target = pair.text.split(), pair.target[:-1]
        assert pair.target[-1] == END
        assert target in texts.docids
        kept = [word for word in words if word != "[MASK]"]
        left = Counter(_NUMBER[word] for word in kept)
        assert not left - Counter(texts.pieces.decode(target))
        changed["masked"] += len(words) - len(kept)
        changed["lost"] += len(target) - len(words)
        changed["words"] += len(target)
        changed["moved"] += not inside(texts.pieces.encode(pieces([" ".join(kept)])[0]), target)
    assert 0.12 < changed["masked"] / changed["words"] < 0.18
    assert 0.12 < changed["lost"] / changed["words"] < 0.18
    assert changed["moved"] > PAIRS / 3


def test_shares_of_views_are_as_configured(folder: Path) -> None:
    collection, texts = read(folder)
    without_queries = Collection(**{**vars(collection), "queries": []})
    shares = Shares(body=0.4, title=0.1, query=0.2, denoising=0.3)
    source = ViewPairs(without_queries, texts, shares, seed=2)
    counts = np.bincount([source.pair(number).view for number in range(PAIRS)], minlength=4)
    wanted = np.array(shares.values()) * PAIRS
    assert float(((counts - wanted) ** 2 / wanted).sum()) < 16.3  # χ² with 3 degrees of freedom, p 0.001
    with pytest.raises(PixnarError, match="four numbers from 0 that sum to 1"):
        ViewPairs(collection, texts, Shares(body=0.9))


def test_an_epoch_has_every_input_once_and_no_dev_query(folder: Path) -> None:
    collection, texts = read(folder)
    source = ViewPairs(collection, texts, Shares(body=0.5, title=0.25, query=0.25, denoising=0), seed=3)
    epochs = [[source.pair(epoch * len(source) + i).text for i in range(len(source))] for epoch in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(text for text, _, _ in collection.inputs())
    assert epochs[0] != epochs[1]
    again = ViewPairs(collection, texts, Shares(body=0.5, title=0.25, query=0.25, denoising=0), seed=3)
    assert [again.pair(i) for i in (700, 3)] == [source.pair(700), source.pair(3)]
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    held = {row["text"] for row in rows if row["_id"].startswith("dev")}
    assert len(held) == DOCUMENTS
    assert not held & {text for text, _, _ in collection.inputs()}
    ids = IdPairs(collection, naive_ids(DOCUMENTS), _pieces)
    assert not held & {ids.pair(i).text for i in range(2 * len(ids))}


def test_pairs_of_ids_are_docids_first_pieces_and_train_queries(folder: Path) -> None:
    collection, _ = read(folder)
    ids = naive_ids(DOCUMENTS, seed=4)
    source = IdPairs(collection, ids, _pieces, seed=4)
    assert len(source) == 3 * DOCUMENTS + DOCUMENTS + DOCUMENTS
    found = {(pair.text, pair.target) for pair in map(source.pair, range(len(source)))}
    wanted = {(text, (*ids[document], END)) for text, document, _ in collection.inputs()}
    assert wanted < found
    for text, target in found - wanted:
        document = ids.index(target[:-1])
        assert f"{collection.titles[document]} {collection.bodies[document]}".startswith(text + " ")
        assert len(text.split()) == 32
    assert all(len(row) == 2 for row in found)


def test_what_is_too_long_or_alone_is_no_target(tmp_path: Path) -> None:
    long = " ".join(WORDS[:WHOLE])
    rows = [DocidRow("a", "balin"), DocidRow("a", long), DocidRow("b", "demor")]
    write_corpus(tmp_path / "c", [Document("a", "balin", "", {}), Document("b", "", "", {})], rows, [], {})
    collection, texts = read(tmp_path / "c")
    source = ViewPairs(collection, texts, Shares(body=0.0, title=0.5, query=0.5, denoising=0.0))
    found = {source.pair(number) for number in range(12)}
    assert {(pair.text, pair.view) for pair in found} == {(long, QUERY), (long, TITLES)}  # "balin" has no target
    alone = Collection(**{**vars(collection), "named": [[0], [1]], "titles": ["", ""]})
    with pytest.raises(PixnarError, match="nothing to train on"):
        ViewPairs(alone, TokenTexts.of(alone, _pieces), Shares(body=0.5, title=0.5, query=0.0, denoising=0.0)).pair(0)
