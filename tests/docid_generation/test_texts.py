from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.corpus import Document
from pixnar.corpus.texts import cut_sentence, split_sentences
from pixnar.docid_generation.key_texts import WordStatistics, key_phrases, key_sentences, most_telling, titles
from pixnar.vocab import normalize

TEXTS = st.text(st.sampled_from('abc AB .!?…。\n"(),;é1'), max_size=80) | st.text(max_size=60)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


@given(TEXTS)
def test_splitting_loses_nothing(text: str) -> None:
    found = split_sentences(text)
    assert squeezed("".join(found)) == squeezed(text)
    assert all(sentence == sentence.strip() != "" for sentence in found)


@given(TEXTS, st.integers(1, 6))
def test_pieces_are_short_and_lose_nothing(text: str, longest: int) -> None:
    for sentence in split_sentences(text):
        found = cut_sentence(sentence, longest)
        assert squeezed("".join(found)) == squeezed(sentence)
        assert all(len(piece.split()) <= longest for piece in found)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Mr. J. R. Smith vs. Dr. Doe et al. lost.", ["Mr. J. R. Smith vs. Dr. Doe et al. lost."]),
        ("It cost 3.50 in the U.S. market.", ["It cost 3.50 in the U.S. market."]),
        ('He said "Go." Then he went.', ['He said "Go."', "Then he went."]),
        ("So did I. Then he left.", ["So did I.", "Then he left."]),
        ("これは本です。それは何？", ["これは本です。", "それは何？"]),
        ("A title\n\nand a text", ["A title", "and a text"]),
        ("Wait... what? no", ["Wait... what? no"]),
        ("", []),
        (" \n\n . ", ["."]),
    ],
)
def test_where_sentences_end(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_key_sentences_say_something_new() -> None:
    others = ["the weather was good today", "today we went home", "the home was good"] * 10
    counted = WordStatistics.count([*others, "zebras have stripes"])
    text = "The weather was good. Zebras have stripes. Zebras have stripes! Today we saw zebras. Is it?"
    found = key_sentences(text, counted, 3)
    assert found[0] == "Zebras have stripes."
    assert "Zebras have stripes!" not in found
    assert "Is it?" not in key_sentences(text, counted, 10)
    assert key_sentences(text, counted, 0) == []
    assert found == key_sentences(text, counted, 10)[:3]


@given(st.lists(st.sets(st.sampled_from("abcdef")), max_size=6), st.integers(0, 6))
def test_the_most_telling_add_something(candidates: list[set[str]], most: int) -> None:
    worth = {letter: float(i) for i, letter in enumerate("abcdef")}
    chosen = most_telling(candidates, worth, most)
    assert len(chosen) == len(set(chosen)) <= most
    told: set[str] = set()
    for place in chosen:
        assert any(worth[word] > 0 for word in candidates[place] - told)
        told |= candidates[place]
    if len(chosen) < most:
        assert not any(worth[word] for candidate in candidates for word in candidate - told)


def test_key_phrases_are_runs_of_telling_words() -> None:
    counted = WordStatistics.count(["a cup", "some cups", "it was the best of all"])
    text = "The House of Usher, by E. A. Poe, was read. We read the house of usher and it's a green-eyed cat's tale."
    found = key_phrases(text, counted, 10)
    assert found[0] == "house of usher"
    assert all(normalize(phrase) == phrase for phrase in found)
    assert not {"the", "of", "it", "s"} & set(found)
    assert key_phrases(text, counted, 2) == found[:2]
    assert all(len(phrase.split()) <= 2 for phrase in key_phrases(text, counted, 10, longest=2))


def test_words_are_counted_per_document(tmp_path: Path) -> None:
    counted = WordStatistics.count(["tea tea tea", "tea cup", "cup über"])
    counted.save(tmp_path / "words")
    for one in (counted, WordStatistics.load(tmp_path / "words")):
        assert one.documents == 3
        assert [one.found_in(word) for word in ("tea", "cup", "über", "pot")] == [2, 2, 1, 0]


def test_memory_of_words_is_bounded() -> None:
    texts = [f"tea word{i}" for i in range(1000)]
    counted = WordStatistics.count(texts, most=100)
    assert counted.found_in("tea") == 1000
    assert len(counted._counts) <= 100
    assert 1 <= counted.found_in("word3") <= 20  # forgotten, and rare all the same
    assert counted.idf("word3") > counted.idf("tea")


@pytest.mark.parametrize(
    ("text", "headings"),
    [
        ("# Plant #\nA shrub.\n\n## Leaves\nGreen.", ["Plant", "Leaves"]),
        ("== Plant ==\nA shrub.\n=== Leaves ===\n", ["Plant", "Leaves"]),
        ("Plant\n=====\nA shrub.\nLeaves\n---\nGreen", ["Plant", "Leaves"]),
        ("<h1 class='x'>The <b>Plant</b></h1><p>A shrub.</p><H2>Leaves</H2>", ["The Plant", "Leaves"]),
        ("Plant\n\nIt is a shrub.\n\nLeaves\r\n\r\nThey are green.", ["Plant", "Leaves"]),
        ("A sentence.\n\nAnother sentence.\n\nA last one.", []),
        ("no headings = here, 1 # 2", []),
        ("# Plant\n\n# Plant\n", ["Plant"]),
    ],
)
def test_headings(text: str, headings: list[str]) -> None:
    assert titles(Document("d", "", text, {}), 10) == headings
    assert titles(Document("d", " My\nTea ", text, {}), 10) == ["My Tea", *(f"My Tea: {one}" for one in headings)]
    assert len(titles(Document("d", "", text, {}), 1)) <= 1


def test_headings_of_the_row() -> None:
    for told in (["Plant", " ", "Leaves"], "Plant\nLeaves\n"):
        assert titles(Document("d", "", "", {"headings": told}), 9) == ["Plant", "Leaves"]
    assert titles(Document("d", "Tea", "", {"headings": 7}), 9) == ["Tea"]
    assert titles(Document("d", "Tea", "# tea\n", {}), 9) == ["Tea"]


@pytest.mark.parametrize(
    "text",
    [
        "==" + " " * 50_000 + "b", "# a" + " " * 50_000 + "b", "# a" + "#" * 50_000 + "b", "." * 50_000 + "x",
        "a." + "'" * 50_000 + "x", ".'" * 50_000, "<h1>" * 50_000, "# " + "<" * 50_000, "\n " * 50_000 + "x",
        "w " * 20 + " " * 50_000 + "b",
    ],
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    """Of a text twice as long the work is twice as much: these took minutes and more when it was four times."""
    began = time.process_time()
    titles(Document("d", "Tea", text, {}), 5)
    for sentence in split_sentences(text):
        cut_sentence(sentence)
    assert time.process_time() - began < 3
