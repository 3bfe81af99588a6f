"""The normaliser: idempotent on everything, and the native path agrees with the definition."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar import _native
from pixnar.base.normalize import normalize, normalize_lines
from tests.helpers.vocab_strategies import any_text, nasty_text


@given(any_text | nasty_text)
def test_idempotent(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once
    assert once == once.strip()
    assert "  " not in once
    once.encode("utf-8")  # no surrogates left


def test_every_single_character_is_idempotent() -> None:
    for code_point in range(sys.maxunicode + 1):
        once = normalize(f"a{chr(code_point)}b")
        assert normalize(once) == once, hex(code_point)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("", ""),
        (" \t\n ", ""),
        ("The  QUICK\nfox", "the quick fox"),
        ("ﬁne ①", "fine 1"),
        ("\ud83d\ude00", "😀"),  # a pair that JSON escapes left apart
        ("a\ud800b", "a\ufffdb"),
        ("no\u00a0break", "no break"),
        ("a\0b", "a\0b"),
        ("ΟΔΟΣ", "οδος"),
    ],
)
def test_examples(raw: str, clean: str) -> None:
    assert normalize(raw) == clean


@given(st.lists(any_text | nasty_text | st.text(st.characters(max_codepoint=127), max_size=20), max_size=8))
def test_lines_are_the_joined_normal_forms(texts: list[str]) -> None:
    assert normalize_lines(texts) == "\n".join(map(normalize, texts)).encode()


def test_lines_refuse_what_is_no_text() -> None:
    with pytest.raises(TypeError):
        normalize_lines(["a", 1])  # type: ignore[list-item]


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="the table is that of Unicode 14")
def test_character_kinds_are_those_of_unicode() -> None:
    for code_point in range(sys.maxunicode + 1):
        kind = _native.char_kind(code_point)
        word = unicodedata.category(chr(code_point))[0] in "LMN"
        assert (kind in (1, 2)) == word, hex(code_point)
    assert _native.char_kind(ord(" ")) == 3
    assert _native.char_kind(ord("中")) == 2
