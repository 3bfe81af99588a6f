"""Native encoder against the slow twin, and the promise that any text comes back."""

from __future__ import annotations

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar.base.errors import VocabularyError
from pixnar.vocab import TargetVocabulary, Token, Vocabulary, normalize
from pixnar.vocab.reference import ReferenceEncoder
from tests.helpers.vocab_strategies import any_text, close_text, nasty_text, vocabularies

PROSE = [
    'he said "no way" twice',
    "rock 'n' roll, they say",
    'the "real" thing - again',
    "e-mail me at 5 p.m.",
    "don't; it's o'clock",
    "she asked: why?",
    "中文 分词 test",
    "naïve café",
]


VOCABULARY = Vocabulary.build([*PROSE, *(" ".join(text.split()[:3]) for text in PROSE)], min_count=2)


@pytest.fixture(scope="module")
def prose() -> Vocabulary:
    return Vocabulary.build([*PROSE, *(text.split(" ", 1)[1] for text in PROSE)], 2_000, min_count=1)


@settings(max_examples=400)
@given(vocabularies(), close_text | nasty_text)
def test_equals_the_reference(vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary.encode(text).tolist() == ReferenceEncoder(vocabulary).encode(text)


@given(st.lists(close_text | nasty_text, min_size=1, max_size=6), close_text)
def test_built_vocabularies_equal_the_reference_too(docids: list[str], text: str) -> None:
    vocabulary = Vocabulary.build([*docids, "a b"], 2_000, min_count=1)
    reference = ReferenceEncoder(vocabulary)
    for each in [*docids, text]:
        assert vocabulary.encode(each).tolist() == reference.encode(each)


@settings(max_examples=300)
@given(any_text | nasty_text)
def test_lossless_on_any_string(text: str) -> None:
    assert VOCABULARY.decode(VOCABULARY.encode(text)) == normalize(text)


@given(vocabularies(), any_text | nasty_text | close_text)
def test_lossless_with_any_vocabulary(vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary.decode(vocabulary.encode(text)) == normalize(text)


def test_lossless_on_every_code_point(prose: Vocabulary) -> None:
    everything = [f"a{chr(c)} {chr(c)}1{chr(c)}{chr(c)}" for c in range(0, sys.maxunicode + 1, 3)]
    batch = prose.encode_batch(everything)
    for text, ids in zip(everything, batch.rows(), strict=True):
        assert prose.decode(ids) == normalize(text)


def test_learned_spacing_needs_few_markers(prose: Vocabulary) -> None:
    markers = sum(int((prose.encode(text) < 2).sum()) for text in PROSE)
    assert markers <= 2


def test_one_id_wherever_a_phrase_stands() -> None:
    vocabulary = Vocabulary.from_tokens([Token("free night")])
    (phrase,) = vocabulary.encode("free night")
    for text in ("a free night", "free night?", "(free night)", '"free night" x', "1-free night-2"):
        assert phrase in vocabulary.encode(text)


def test_ties_go_to_the_more_frequent() -> None:
    rare_first = Vocabulary.from_tokens([Token("a b", count=1), Token("c"), Token("a"), Token("b c", count=100)])
    assert rare_first.tokens("a b c") == ["a", "b c"]
    common_first = Vocabulary.from_tokens([Token("a b", count=100), Token("c"), Token("a"), Token("b c", count=1)])
    assert common_first.tokens("a b c") == ["a b", "c"]


@given(st.lists(any_text, max_size=12), st.integers(1, 4))
def test_batches_equal_single_texts(texts: list[str], threads: int) -> None:
    batch = VOCABULARY.encode_batch(texts, threads=threads)
    assert [row.tolist() for row in batch.rows()] == [VOCABULARY.encode(text).tolist() for text in texts]
    assert batch.lengths.tolist() == [len(VOCABULARY.encode(text)) for text in texts]


def test_large_batches_keep_their_order(prose: Vocabulary) -> None:
    texts = [f"{i} {PROSE[i % len(PROSE)]}" for i in range(5_000)]
    for threads in (1, 2, 4):
        batch = prose.encode_batch(texts, threads=threads)
        assert [prose.decode(row) for row in batch.rows()] == texts


@given(st.lists(st.integers(0, len(VOCABULARY) - 1), max_size=20))
def test_any_sequence_decodes(ids: list[int]) -> None:
    assert isinstance(VOCABULARY.decode(ids), str)


def test_wrong_ids_and_wrong_types_are_refused(prose: Vocabulary) -> None:
    with pytest.raises(VocabularyError, match=rf"token id {len(prose)} is not in 0 … {len(prose) - 1}"):
        prose.decode([1, len(prose)])
    with pytest.raises(VocabularyError, match="token id -1"):
        prose.decode(np.array([-1]))
    with pytest.raises(VocabularyError, match="token id -1"):
        prose.token(-1)
    with pytest.raises(TypeError, match="sequence of texts"):
        prose.encode_batch("one text")


def test_longest_text_is_refused_in_one_line(prose: Vocabulary) -> None:
    with pytest.raises(VocabularyError, match="16 MiB"):
        prose.encode("a" * (1 << 24))


@pytest.mark.parametrize(
    "text",
    ["x" * 10_000_000, "ab " * 3_000_000, "\0" * 1_000_000, "ש" * 500_000, "e" + "\u0301" * 500_000, '"' * 100_001],
    ids=["one word", "many words", "NUL", "right to left", "combining marks", "quotes"],
)
def test_ten_megabytes_in_one_line(prose: Vocabulary, text: str) -> None:
    assert prose.decode(prose.encode(text)) == normalize(text)


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([Token("")], "is empty"),
        ([Token("a b", continuation=True)], "more than one atom"),
    ],
)
def test_tokens_that_make_no_vocabulary(tokens: list[Token], why: str) -> None:
    with pytest.raises(VocabularyError, match=why):
        Vocabulary.from_tokens(tokens)


def test_readable_tokens(prose: Vocabulary) -> None:
    assert [prose.token(v) for v in (0, 1)] == ["<glue>", "<blank>"]
    assert prose.token(2 + 0xE2) == "<0xE2>"
    assert prose.token(2 + 256 + ord("a")) == "##a"
    assert isinstance(prose, TargetVocabulary)
    assert unicodedata.normalize("NFC", prose.decode(prose.encode("CAFÉ"))) == "café"
