"""The lexical index: equal to a naive computation, to BM25 where they are the same, and back from disk."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import write_container
from pixnar.fusion import Bm25
from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.terms import words
from pixnar.vocab import Token, Vocabulary, normalize

PHRASES = ["new", "york", "hotels", "pizza", "é", "new york", "new york hotels", "hotels, new", "é bar", "cheap hotels"]
VOCABULARY = Vocabulary.from_tokens(map(Token, PHRASES))
TOKENS = {VOCABULARY.token(v): v for v in range(len(VOCABULARY))}
TEXTS = [(0, "New York hotels"), (0, "cheap hotels"), (2, "pizza, in New York"), (3, "zebras in a zebra crossing")]

PARTS = ["new", "york", "New York", "hotels", ",", "é", "bar", "zebra", "zebras"]
TEXT = st.lists(st.sampled_from(PARTS), max_size=12).map(lambda parts: " ".join(parts).replace(" ,", ","))


def atoms_of(text: str) -> list[str]:
    return normalize(text).replace(",", " , ").split()


def spans(text: str) -> Counter[str]:
    """Words, and runs of atoms that are tokens, with blanks between all atoms."""
    atoms, known = atoms_of(text), {" ".join(atoms_of(token)) for token in TOKENS if not token.startswith("##")}
    found = [" ".join(atoms[i:j]) for i in range(len(atoms)) for j in range(i + 1, len(atoms) + 1)]
    return Counter(span for span in found if span in known or span.isalpha())


def naive_own(texts: list[tuple[int, str]], n_units: int, query: str, phrase_weight: float) -> list[float]:
    counts: list[Counter[str]] = [Counter() for _ in range(n_units)]
    lengths = [0] * n_units
    for unit, text in texts:
        counts[unit] += spans(text)
        lengths[unit] += len(words(normalize(text)))
    mean = max(sum(lengths) / n_units, 1e-9)
    scores = [0.0] * n_units
    for term, times in spans(query).items():
        found_in = sum(term in unit for unit in counts)
        idf = math.log(1 + (n_units - found_in + 0.5) / (found_in + 0.5))
        factor = 1 if term.isalpha() else phrase_weight if words(term) else 0
        for unit in range(n_units):
            tf = counts[unit][term]
            part = tf * 2.5 / (tf + 1.5 * (0.25 + 0.75 * lengths[unit] / mean)) if tf else 0
            scores[unit] += times * factor * idf * part
    return scores


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), TEXT), max_size=8), TEXT)
def test_own_score_is_the_naive_one(texts: list[tuple[int, str]], query: str) -> None:
    lexical = LexicalIndex.build(VOCABULARY, texts, 4, k1=1.5, b=0.75, phrase_weight=0.5)
    assert lexical.score(query) == pytest.approx(naive_own(texts, 4, query, 0.5), abs=1e-5)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), TEXT), max_size=8), TEXT)
def test_without_phrases_it_is_bm25(texts: list[tuple[int, str]], query: str) -> None:
    lexical = LexicalIndex.build(VOCABULARY, texts, 4, k1=1.5, b=0.75, phrase_weight=0)
    bm25 = Bm25.build(" ".join(text for owner, text in texts if owner == unit) for unit in range(4))
    assert lexical.score(query) == pytest.approx(2.5 * bm25.score(query), abs=1e-5)


def test_terms_of_a_query() -> None:
    lexical = LexicalIndex.build(VOCABULARY, TEXTS, 4)
    terms, weights = lexical.query_terms("ZEBRA, new york: Zebra unheard-of")
    size = len(VOCABULARY)
    zebra = lexical.table.find("zebra")
    assert zebra is not None
    factors = {TOKENS["new"]: 1.0, TOKENS["york"]: 1.0, TOKENS["new york"]: 0.1, size + zebra: 2.0}
    assert dict(zip(terms.tolist(), weights.tolist(), strict=True)) == pytest.approx(
        {term: factor * float(lexical.idf[term]) for term, factor in factors.items()}
    )
    assert set(lexical.table) == {"cheap", "crossing", "in", "zebra", "zebras"}


def test_expansion_by_hand() -> None:
    lexical = LexicalIndex.build(VOCABULARY, TEXTS, 4)
    ids = np.array([TOKENS["hotels"], TOKENS["new york"], TOKENS["pizza"]])
    gains = np.array([2.0, 1.0, -3.0])
    hotels, new_york = (dict(zip(*map(np.ndarray.tolist, lexical.postings.of(v)), strict=True)) for v in ids[:2])
    expected = [2 * hotels.get(unit, 0) + new_york.get(unit, 0) for unit in range(4)]
    assert lexical.expansion(ids, gains) == pytest.approx(expected)
    assert hotels[0] > new_york[0] > 0
    assert lexical.expansion([], []).tolist() == [0, 0, 0, 0]
    with pytest.raises(IndexError, match="token ids must be in"):
        lexical.expansion([len(VOCABULARY)], [1.0])


def test_order_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    lexical = LexicalIndex.build(VOCABULARY, TEXTS, 4)
    monkeypatch.setattr("pixnar.fusion.lexical._BATCH", 2)
    other = LexicalIndex.build(VOCABULARY, iter(TEXTS[::-1]), 4)
    for name, values in lexical.postings.arrays().items():
        assert other.postings.arrays()[name].tolist() == values.tolist()


def test_units_must_exist() -> None:
    for unit in (-1, 4):
        with pytest.raises(ValueError, match="must be in 0 … 3"):
            LexicalIndex.build(VOCABULARY, [(unit, "pizza")], 4)


def parts(lexical: LexicalIndex) -> dict[str, NDArray[Any]]:
    table: dict[str, NDArray[Any]] = {
        "words": lexical.table.data,
        "word_offsets": lexical.table.offsets,
        "shapes": lexical.shapes,
        "lengths": lexical.lengths.values,
    }
    return lexical.postings.arrays() | table


@pytest.mark.parametrize("texts", [TEXTS, []])
def test_files(tmp_path: Path, texts: list[tuple[int, str]]) -> None:
    lexical = LexicalIndex.build(VOCABULARY, texts, 4, phrase_weight=0.25)
    lexical.save(tmp_path / "e")
    for verify in (True, False):
        loaded = LexicalIndex.load(tmp_path / "e", VOCABULARY, verify=verify)
        assert loaded.score("new york zebra").tolist() == lexical.score("new york zebra").tolist()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "e").read_bytes()


def test_bad_files_are_refused(tmp_path: Path) -> None:
    lexical = LexicalIndex.build(VOCABULARY, TEXTS, 4)
    lexical.save(tmp_path / "e")
    with pytest.raises(FileFormatError, match="the vocabulary has"):
        LexicalIndex.load(tmp_path / "e", Vocabulary.build(["another"]))
    raw = bytearray((tmp_path / "e").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "e").write_bytes(raw)
    with pytest.raises(FileFormatError, match="damaged"):
        LexicalIndex.load(tmp_path / "e", VOCABULARY)
    good = parts(lexical)
    noted: dict[str, Any] = {"docids": "all", **lexical.lengths.meta}
    meta = noted | {"n_units": 4, "phrase_weight": 0.1}
    for change, new_meta, reason in (
        ({"word_offsets": lexical.table.offsets[1:]}, meta, "do not fit together"),
        ({"offsets": lexical.postings.offsets[:-1]}, meta, "do not fit together"),
        ({"lengths": lexical.lengths.values[1:]}, meta, "3 lengths for 4 documents"),
        ({}, meta | {"n_units": 2}, "is not below 2"),
        ({}, noted | {"n_units": 4}, "phrase_weight"),
    ):
        write_container(tmp_path / "e", "lexical", 1, new_meta, good | change)
        with pytest.raises(FileFormatError, match=reason):
            LexicalIndex.load(tmp_path / "e", VOCABULARY)


def test_documents_that_are_not_counted_change_no_score() -> None:
    texts = ["new york pizza", "hotels of rome"]
    alone = LexicalIndex.build(VOCABULARY, list(enumerate(texts)), 2)
    among = LexicalIndex.build(VOCABULARY, list(zip((0, 2), texts, strict=True)), 4, n_counted=2)
    for query in ("pizza in rome", "new york", "hotels"):
        assert among.score(query)[[0, 2]].tolist() == alone.score(query).tolist()
        assert among.score(query)[[1, 3]].tolist() == [0, 0]
