from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.corpus.queries import Perturbation
from pixnar.search.reference import near
from pixnar.search.spelling import Lexicon, Speller, best, is_slip
from pixnar.vocab import normalize

COUNTS = {"hotels": 5, "hostels": 2, "in": 90, "rome": 30, "roma": 1, "cheap": 4, "café": 3, "of": 50, "pizza": 0}
COUNTS["x" * 64] = 2
SPELLER = Speller(Lexicon.of(COUNTS))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cheap hotels in rome", "cheap hotels in rome"),
        ("chaep hotles in rmoe", "cheap hotels in rome"),
        ("hotles-rome (chep!)", "hotels-rome (cheap!)"),
        ("cafe", "café"),
        ("roxe", "rome"),
        ("pizza", "pizza"),  # known, though the corpus lacks it
        ("pizzza", "pizzza"),  # and nothing is corrected to it
        ("ni orme", "ni rome"),  # two letters are too few
        ("r0me hotels2", "r0me hotels2"),  # digits
        ("xyzzy", "xyzzy"),
        ("", ""),
        ("?!", "?!"),
        ("東京", "東京"),
        ("x" * 65, "x" * 65),  # its neighbour is as long as a word may be
    ],
)
def test_corrected(text: str, wanted: str) -> None:
    assert SPELLER.correct(text) == wanted


@given(st.text(max_size=40))
def test_any_text_stays_normal_and_settles(text: str) -> None:
    once = SPELLER.correct(normalize(text))
    assert normalize(once) == once
    assert SPELLER.correct(once) == once


@given(st.lists(st.sampled_from(sorted(COUNTS)), min_size=1, max_size=5), st.integers(0, 1000))
def test_a_typo_gives_a_known_word_or_stays(words: list[str], seed: int) -> None:
    text = " ".join(words)
    assert SPELLER.correct(text) == text
    misspelt = normalize(Perturbation(typos=1, seed=seed).apply(text, "q"))
    for typed, fixed in zip(misspelt.split(), SPELLER.correct(misspelt).split(), strict=True):
        assert fixed == typed or (COUNTS[fixed] and fixed in near(COUNTS, typed) and typed not in COUNTS)


def test_a_final_s_is_no_typo() -> None:
    assert SPELLER.correct("romes cheaps of hotelss") == "romes cheaps of hotelss"
    assert SPELLER.correct("romess") == "romess"  # two edits
    assert SPELLER.correct("rosme") == "rome"  # an s elsewhere is


@pytest.mark.parametrize(("least", "wanted"), [(4, "cheap hotels"), (5, "chep hotels"), (6, "chep hotles")])
def test_rare_words_are_not_corrected_to(least: int, wanted: str) -> None:
    speller = Speller(SPELLER.lexicon, least=least)
    assert speller.correct("chep hotles") == wanted
    assert speller.with_added(["chop"]).correct("chpo hotles").startswith("chop")  # was added, so it is wanted


def test_which_word_is_likeliest() -> None:
    lexicon = Lexicon.of({"fish": 3, "dish": 4, "wish": 30, "fist": 3})
    assert Speller(lexicon).correct("vish") == "wish"  # ten times as frequent
    assert Speller(lexicon).correct("fisj") == "fish"  # j lies beside h; t does not
    assert best("abc", []) == "abc"
    assert best("tae", Lexicon.of({"tab": 2, "tag": 2}).near("tae")) == "tab"  # equals go by their letters


@pytest.mark.parametrize(
    ("meant", "typed", "slip"),
    [
        ("rome", "rme", True),
        ("rome", "orme", True),
        ("rome", "rlme", True),
        ("rome", "rame", False),
        ("rome", "roome", True),
        ("rome", "romne", True),
        ("rome", "roqme", False),
        ("rome", "romee", True),
        ("rome", "prome", False),
        ("rome", "trome", True),
    ],
)
def test_slips_of_the_finger(meant: str, typed: str, slip: bool) -> None:
    assert is_slip(meant, typed) is slip


def test_added_words_are_known_and_found() -> None:
    assert SPELLER.correct("sencha senhca hotles") == "sencha senhca hotels"
    added = SPELLER.with_added(["green sencha", "rombe"])
    assert added.correct("sencha senhca hotles") == "sencha sencha hotels"
    assert added.correct("rombe") == "rombe"
    assert added.with_added([]).correct("senhca") == "senhca"


def test_a_long_text_is_corrected_at_its_beginning() -> None:
    noise = " ".join(f"{'abcdefghij'[i % 10] * 3}{'klmnopqrst'[i // 10] * 3}" for i in range(100))
    assert SPELLER.correct(f"hotles {noise}").startswith("hotels aaakkk")
    assert SPELLER.correct(f"{noise} hotles").endswith("hotles")
