"""N-grams: what the reference's atoms say, and never less than the vocabulary's own encoding."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import VocabularyError
from pixnar.fusion import Ngrams
from pixnar.fusion.terms import atom_pattern, words
from pixnar.vocab import Token, TokenizerVocabulary, Vocabulary, normalize
from pixnar.vocab.reference import atoms
from tests.helpers.slow_ngrams import SlowNgrams
from tests.helpers.vocab_strategies import any_text, close_text, nasty_text, vocabularies

START, CONTINUATION = 0, 1


def whole_tokens(vocabulary: Vocabulary, ids: list[int]) -> list[int]:
    """Tokens of an encoding that cover whole atoms."""
    kinds = [*vocabulary.arrays["kinds"][ids].tolist(), START]
    return [v for i, v in enumerate(ids) if kinds[i] == START and kinds[i + 1] != CONTINUATION]


def spans(text: str) -> list[str]:
    """Every run of atoms, by begin and length."""
    parts = atoms(normalize(text))
    found = []
    for i in range(len(parts)):
        for j in range(i + 1, len(parts) + 1):
            found.append(
                "".join(" " * (atom.blank_before and n > i) + atom.text for n, atom in enumerate(parts[:j]) if n >= i)
            )
    return found


@given(any_text | nasty_text | close_text)
def test_atoms_and_words_are_those_of_the_reference(text: str) -> None:
    text = normalize(text)
    expected = [atom.text for atom in atoms(text)]
    assert atom_pattern(text).findall(text) == expected
    assert words(text) == [atom for atom in expected if atom in words(atom)]


@given(vocabularies(close_text | nasty_text), st.lists(close_text | nasty_text, max_size=4))
def test_all_runs_of_atoms_and_the_rest_of_the_encoding(vocabulary: Vocabulary, texts: list[str]) -> None:
    with_pieces, without = Ngrams(vocabulary), Ngrams(vocabulary, pieces=False)
    starts = {vocabulary.token(v): v for v in range(len(vocabulary)) if vocabulary.arrays["kinds"][v] == START}
    counted = with_pieces.count(texts, threads=1)
    assert len(counted.offsets) == len(texts) + 1
    for i, text in enumerate(texts):
        encoded = vocabulary.encode(text).tolist()
        whole = whole_tokens(vocabulary, encoded)
        found = [starts[span] for span in spans(text) if span in starts]
        assert without.of(text).tolist() == list(dict.fromkeys(found))
        assert set(whole) <= set(found)
        assert set(with_pieces.of(text).tolist()) == set(found) | set(encoded)
        row = slice(counted.offsets[i], counted.offsets[i + 1])
        counts = dict(zip(counted.ids[row].tolist(), counted.counts[row].tolist(), strict=True))
        assert counts == Counter(found) + (Counter(encoded) - Counter(whole))


@given(
    vocabularies(close_text | nasty_text | any_text),
    st.lists(close_text | nasty_text | any_text, max_size=4),
    st.booleans(),
    st.integers(1, 3),
)
def test_the_native_core_agrees_with_its_slow_twin(
    vocabulary: Vocabulary, texts: list[str], pieces: bool, threads: int
) -> None:
    ngrams, slow = Ngrams(vocabulary, pieces=pieces), SlowNgrams(vocabulary, pieces=pieces)
    # Texts that are sure to have tokens in them, beside each other and glued together.
    texts += [glue.join(vocabulary.token(v) for v in range(514, len(vocabulary))) for glue in (" ", "")]
    counted = ngrams.count(texts, threads=threads)
    assert [str(part.dtype) for part in counted] == ["uint32", "int64", "uint32"]
    for i, text in enumerate(texts):
        assert vocabulary.ngrams(text, pieces=pieces).tolist() == slow.all(text)
        assert ngrams.of(text).tolist() == slow.of(text)
        row = slice(counted.offsets[i], counted.offsets[i + 1])
        assert dict(zip(counted.ids[row].tolist(), counted.counts[row].tolist(), strict=True)) == slow.count(text)
        assert counted.ids[row].tolist() == sorted(slow.count(text))


def test_threads_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary.build([f"word{i % 97} phrase{i % 13} of number {i % 31}" for i in range(2_000)], 700)
    texts = [f"Number {i % 31}: word{i % 101} phrase{i % 17} of  number {i}é" for i in range(5_000)]
    expected = Ngrams(vocabulary).count(texts, threads=1)
    for threads, batch in ((0, 20_000), (2, 20_000), (3, 1_500), (1, 1)):
        monkeypatch.setattr("pixnar.fusion.terms._BATCH", batch)
        few = texts[:200] if batch == 1 else texts
        found = Ngrams(vocabulary).count(few, threads=threads)
        end = expected.offsets[len(few)]
        assert found.offsets.tolist() == expected.offsets[: len(few) + 1].tolist()
        assert found.ids.tolist() == expected.ids[:end].tolist()
        assert found.counts.tolist() == expected.counts[:end].tolist()


def test_a_text_that_is_too_long_is_refused_where_it_must_be() -> None:
    vocabulary = Vocabulary.from_tokens([Token("ab")])
    text = "ab " * (1 << 23)
    with pytest.raises(VocabularyError, match="16 MiB"):
        Ngrams(vocabulary).of(text)
    assert Ngrams(vocabulary, pieces=False).count([text]).counts.tolist() == [1 << 23]


def test_overlaps_and_order() -> None:
    vocabulary = Vocabulary.from_tokens(
        map(Token, ["new", "new york", "york", "new york hotels", "york hotel", "hotels", "o'clock"])
    )
    ngrams = Ngrams(vocabulary)
    shown = [vocabulary.token(v) for v in ngrams.of("New York  hotels, new york, o'clock o' clock")]
    assert shown[:6] == ["new", "new york", "new york hotels", "york", "hotels", ","]
    assert shown[6:8] == ["o", "o'clock"]
    assert "york hotel" not in shown
    assert ngrams.of("").tolist() == []


def test_rows_of_counts() -> None:
    vocabulary = Vocabulary.from_tokens(map(Token, ["ab", "ba"]))
    counted = Ngrams(vocabulary).count(["ab ba ab", "", "ba"])
    assert [vocabulary.token(v) for v in counted.ids] == ["ab", "ba", "ba"]
    assert counted.counts.tolist() == [2, 1, 1]
    assert counted.offsets.tolist() == [0, 2, 2, 3]
    assert counted.texts.tolist() == [0, 0, 2]
    assert Ngrams(vocabulary).count([]).offsets.tolist() == [0]
    with pytest.raises(TypeError, match="a sequence of texts"):
        Ngrams(vocabulary).count("ab")


def test_other_vocabularies_give_their_encoding() -> None:
    vocabulary = TokenizerVocabulary.train_bpe(["new york hotels", "new york pizza"], 300)
    for pieces in (True, False):
        ngrams = Ngrams(vocabulary, pieces=pieces)
        text = "new york new york"
        assert ngrams.of(text).tolist() == list(dict.fromkeys(vocabulary.encode(text).tolist()))
        counted = ngrams.count([text, "pizza"], threads=1)
        assert counted.counts.sum() == len(vocabulary.encode(text)) + len(vocabulary.encode("pizza"))
        assert (np.diff(counted.offsets) > 0).all()
