"""Texts and vocabularies that are likely to meet each other, and texts that are likely to break things."""

from __future__ import annotations

from hypothesis import strategies as st

from pixnar.base.errors import VocabularyError
from pixnar.vocab import Token, Vocabulary, normalize
from pixnar.vocab.reference import atoms

any_text = st.text(st.characters(), max_size=40)  # all of Unicode, lone surrogates and controls included
nasty_text = st.lists(
    st.sampled_from(
        ["a", "B", " ", "\t", "\n", '"', "'", "-", ",", ".", "1", "é", "e\u0301", "ﬁ", "中", "文", "😀", "\0"]
    )
    | st.sampled_from(["\u200f", "ش", "ß", "İ", "\ud800", "\udfff", "\x1c", "\x85", "\u00a0", "\u0345", "\ufffd"]),
    max_size=24,
).map("".join)
close_text = st.text('ab "-,中é', max_size=16)  # few letters, so that many segmentations compete


@st.composite
def vocabularies(draw: st.DrawFn, text: st.SearchStrategy[str] = close_text) -> Vocabulary:
    """A random vocabulary of valid tokens with random counts."""
    tokens = {}
    for piece, continuation, count in draw(st.lists(st.tuples(text, st.booleans(), st.integers(0, 9)), max_size=30)):
        clean = normalize(piece)
        if clean and (not continuation or len(atoms(clean)) == 1):
            tokens[clean, continuation] = Token(clean, continuation, count)
    try:
        return Vocabulary.from_tokens(tokens.values())
    except VocabularyError as error:  # the strategy makes valid tokens only
        raise AssertionError(tokens) from error
