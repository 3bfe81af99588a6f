from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import FileFormatError
from pixnar.corpus import DocidRow, Document, Query, open_corpus, write_corpus
from pixnar.search.reference import distance, near
from pixnar.search.spelling import Lexicon, Neighbour, Speller, whole_words

ALPHABET = "abcé\u0436\u2e7f\u2e80語😀"  # one to four bytes of UTF-8, and both sides of where CJK begins
WORD = st.text(ALPHABET, min_size=1, max_size=6)


def lexicon_of(words: set[str]) -> Lexicon:
    return Lexicon.of(dict.fromkeys(words, 1))


@given(st.sets(WORD, max_size=60), WORD)
def test_near_is_what_brute_force_finds(words: set[str], word: str) -> None:
    assert [one.word for one in lexicon_of(words).near(word)] == near(words, word)


@given(st.sets(st.text("ab", min_size=1, max_size=5), max_size=40), st.text("ab", max_size=6))
def test_near_where_nearly_everything_is_near(words: set[str], word: str) -> None:
    assert [one.word for one in lexicon_of(words).near(word)] == near(words, word)


@given(WORD, WORD)
def test_a_distance_is_symmetric_and_zero_for_equals_alone(one: str, other: str) -> None:
    assert distance(one, other) == distance(other, one)
    assert (distance(one, other) == 0) == (one == other)
    assert abs(len(one) - len(other)) <= distance(one, other) <= max(len(one), len(other))


def test_words_that_count_nothing_are_known_but_never_found() -> None:
    lexicon = Lexicon.of({"rome": 2, "roma": 0})
    assert "roma" in lexicon
    assert lexicon.near("romx") == [Neighbour("rome", 2)]
    assert lexicon.lookup(["roma", "romx", "zzz"]) == [None, [Neighbour("rome", 2)], []]


def test_words_of_a_corpus(tmp_path: Path) -> None:
    documents = [Document("d1", "Green Tea", "A hot drink: TEA.", {})]
    queries = [Query("q1", "beverage")]
    write_corpus(
        tmp_path / "corpus", documents, [DocidRow("d1", "sencha, tea"), DocidRow("d1", "x" * 100)], queries, {}
    )
    lexicon = Lexicon.of_corpus(open_corpus(tmp_path / "corpus"), ["coffee", "tea"])
    counts = dict(zip(lexicon.table, lexicon.counts.tolist(), strict=True))
    assert counts == {"a": 1, "coffee": 0, "drink": 1, "green": 1, "hot": 1, "sencha": 1, "tea": 3}


def test_saved_and_loaded(tmp_path: Path) -> None:
    made = Lexicon.of({"tea": 3, "é": 1, "語": 2**40})
    made.save(tmp_path / "lexicon.pixnar")
    first = (tmp_path / "lexicon.pixnar").read_bytes()
    for verify in (True, False):
        read = Lexicon.load(tmp_path / "lexicon.pixnar", verify=verify)
        assert list(read.table) == ["tea", "é", "語"]
        assert read.counts.tolist() == [3, 1, 2**32 - 1]
        assert "tea" in read
        assert "te" not in read
    made.save(tmp_path / "lexicon.pixnar")
    assert (tmp_path / "lexicon.pixnar").read_bytes() == first


def test_an_empty_lexicon(tmp_path: Path) -> None:
    Lexicon.of({}).save(tmp_path / "lexicon.pixnar")
    empty = Lexicon.load(tmp_path / "lexicon.pixnar")
    assert len(empty) == 0
    assert "tea" not in empty
    assert empty.near("tea") == []


def test_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.pixnar"
    Lexicon.of({"tea": 3, "green": 1}).save(path)
    sound = path.read_bytes()
    path.write_bytes(sound[:-3] + b"\xff" + sound[-2:])
    with pytest.raises(FileFormatError, match="does not match its checksum"):
        Lexicon.load(path)
    path.write_bytes(sound[:-10])
    with pytest.raises(FileFormatError, match="damaged or incomplete"):
        Lexicon.load(path, verify=False)
    with pytest.raises(FileFormatError, match="cannot open"):
        Lexicon.load(tmp_path / "none.pixnar")


def test_damage_inside_arrays_is_an_answer_or_one_line(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.pixnar"
    Lexicon.of({word: i + 1 for i, word in enumerate(["café", "cafés", "hotel", "hotels", "tea", "été"])}).save(path)
    whole, random, told = path.read_bytes(), np.random.default_rng(0), []
    begin = 64 + int.from_bytes(whole[24:32], "little")
    for _ in range(300):
        spoiled = bytearray(whole)
        for place in random.integers(begin, len(whole), 4):
            spoiled[place] = random.integers(256)
        path.write_bytes(spoiled)
        try:
            speller = Speller(Lexicon.load(path, verify=False))
            assert isinstance(speller.correct("cafe hotles tee étés"), str)
        except FileFormatError as error:
            told.append(str(error))
    assert told
    assert all("lexicon" in line and "\n" not in line for line in told)


@given(st.lists(st.integers(-5, 30), min_size=3, max_size=6), st.binary(max_size=20), WORD)
def test_damaged_arrays_do_no_harm(offsets: list[int], data: bytes, word: str) -> None:
    from pixnar import _native

    found = _native.near_sorted(np.frombuffer(data, np.uint8), np.array(offsets, np.int64), word.encode())
    assert all(0 <= i < len(offsets) - 1 for i in found.tolist())


def test_whole_words_of_tokenizers() -> None:
    assert whole_words(["[UNK]", "the", "##ing", "Tea", "a-b", "1999", "."]) == ["1999", "tea", "the"]
    assert whole_words(["<s>", "▁the", "ing", "▁Tea", "▁"]) == ["tea", "the"]
    assert whole_words(["Ġthe", "ing", "Ġtea", "!"]) == ["tea", "the"]
    assert whole_words([]) == []
