"""Sentences of a text: where they end, and how long ones are cut."""

from __future__ import annotations

import re

LONGEST = 12  # words of a sentence; longer ones are cut, where they can be, at commas

_QUOTES = "\"'”’»)\\]"
_END = re.compile(rf"(?<![.!?…])[.!?…]++[{_QUOTES}]*+(?=\s)|[。！？]+[{_QUOTES}」』]*|\n\s*\n")  # one try for a run
_LAST_WORD = re.compile(r"[^\W\d_]+$")
_CLAUSE = re.compile(r"(?<=[,;:])\s+|\s+(?=[(–—])|(?<=[、，；：])")
_ABBREVIATED = (
    "al approx capt cf co col corp dept dr ed eds eg fig gen gov hon ie inc jr lt ltd maj mr mrs ms mt no nos op pp "
    "prof rep rev sen sgt sr st vol vs"
)
_SHORT = frozenset(_ABBREVIATED.split())  # words that a full stop follows without an end


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, as they stand there, in any language that ends them with one of . ! ? … 。！？

    >>> split_sentences('Dr. A. Smith came at 5 p.m. on foot. "Why?" he was asked! He did not say...')
    ['Dr. A. Smith came at 5 p.m. on foot.', '"Why?" he was asked!', 'He did not say...']
    """
    found, start = [], 0
    for end in _END.finditer(text):
        if _ends(text, end):
            found.append(text[start : end.end()].strip())
            start = end.end()
    found.append(text[start:].strip())
    return [sentence for sentence in found if sentence]


def _ends(text: str, mark: re.Match[str]) -> bool:
    sign = mark.group()[0]
    if sign not in ".!?…":
        return True
    after = text[mark.end() : mark.end() + 64].lstrip(" \t\"'“‘«([")[:1]
    if after.islower():
        return False
    if not mark.group().startswith(".") or mark.group().startswith(".."):
        return True
    before = _LAST_WORD.search(text, max(0, mark.start() - 16), mark.start())
    word = before.group() if before else ""
    return not (word.lower() in _SHORT or (len(word) == 1 and word.isupper() and word != "I"))


def cut_sentence(sentence: str, longest: int = LONGEST) -> list[str]:
    """A sentence of at most so many words as it is; a longer one in parts, cut at commas and the like where it can be.

    >>> cut_sentence("It rained all day, which nobody minded, and all night.", 5)
    ['It rained all day,', 'which nobody minded,', 'and all night.']
    """
    if len(sentence.split()) <= longest:
        return [sentence]
    parts: list[list[str]] = [[]]
    for clause in filter(None, _CLAUSE.split(" ".join(sentence.split()))):
        row = clause.split()
        if len(parts[-1]) + len(row) > longest:
            parts += [row[i : i + longest] for i in range(0, len(row), longest)]
        else:
            parts[-1] += row
    return [" ".join(part) for part in parts if part]
