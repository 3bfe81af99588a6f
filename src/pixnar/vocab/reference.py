"""The slow, obvious twin of the native encoder: it explains the fast one, and tests hold the two equal."""

from __future__ import annotations

import math
from typing import NamedTuple

from pixnar import _native
from pixnar.base.normalize import normalize
from pixnar.vocab.phrases import BLANK, GLUE, Vocabulary

_SINGLE, _WORD, _LONE, _BLANK = range(4)  # kinds of characters, as in native/vocab/text.hpp


class Atom(NamedTuple):
    """A run of word characters, or one other character."""

    text: str
    blank_before: bool


def atoms(text: str) -> list[Atom]:
    """The atoms of a normalised text.

    >>> [atom.text for atom in atoms("all-star game, 1999")]
    ['all', '-', 'star', 'game', ',', '1999']
    """
    found: list[Atom] = []
    blank, joins = False, False
    for c in text:
        kind = _native.char_kind(ord(c))
        if kind == _BLANK:
            blank, joins = True, False
            continue
        if kind == _WORD and joins:
            found[-1] = found[-1]._replace(text=found[-1].text + c)
        else:
            found.append(Atom(c, blank and bool(found)))
        blank, joins = False, kind == _WORD
    return found


class ReferenceEncoder:
    """Encodes by one flat dynamic programme over the bytes of a text.

    >>> from pixnar import Vocabulary
    >>> vocabulary = Vocabulary.build(["free night", "one free night"], min_count=2)
    >>> encoder = ReferenceEncoder(vocabulary)
    >>> encoder.encode("Free nights") == vocabulary.encode("Free nights").tolist()
    True
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        arrays = vocabulary.arrays
        self._chars = arrays["spacing_chars"].tolist()
        self._rule = arrays["spacing_rule"].tolist()
        self._scores = arrays["scores"].tolist()
        self._starts: dict[bytes, int] = {}
        self._continuations: dict[bytes, int] = {}
        for v, kind in enumerate(arrays["kinds"]):
            if kind < 2:
                (self._starts, self._continuations)[kind][vocabulary.token_bytes(v)] = v

    def _class_of(self, c: str) -> int:
        kind = _native.char_kind(ord(c))
        if kind == _WORD:
            return 1 if c in "0123456789" else 0
        if kind == _LONE:
            return 2
        return 4 + self._chars.index(ord(c)) if ord(c) in self._chars else 3

    def _usual_blank(self, before: str, next_char: str) -> bool:
        """Whether the spacing rule puts a blank between `before` and `next_char`."""
        last = before[-1]
        quoted = before.count('"') % 2
        detached = _native.char_kind(ord(last)) == _SINGLE and (len(before) == 1 or before[-2] == " ")
        classes = 4 + len(self._chars)
        row = (quoted * 2 + detached) * classes + self._class_of(last)
        return bool(self._rule[row * classes + self._class_of(next_char)])

    def encode(self, text: str) -> list[int]:
        """The token ids of a text."""
        text = normalize(text)
        parts = atoms(text)
        data = b"".join(atom.text.encode() for atom in parts)  # without blanks: positions in it are token borders
        if not data:
            return []
        begins = [0]  # where atoms begin, and the end
        marker: dict[int, int] = {}  # begin of an atom -> the marker a border there needs
        seen = ""
        for atom in parts:
            if seen and self._usual_blank(seen, atom.text[0]) != atom.blank_before:
                marker[begins[-1]] = BLANK if atom.blank_before else GLUE
            seen += " " * atom.blank_before + atom.text
            begins.append(begins[-1] + len(atom.text.encode()))

        # Every token that fits: (begin, end, id). Phrases cover whole atoms, pieces lie within one.
        fits: list[tuple[int, int, int]] = []
        for i, begin in enumerate(begins[:-1]):
            phrase = b""
            for j in range(i, len(parts)):
                phrase += b" " * (parts[j].blank_before and j > i) + parts[j].text.encode()
                if j > i and phrase in self._starts:
                    fits.append((begin, begins[j + 1], self._starts[phrase]))
            for a in range(begin, begins[i + 1]):
                pieces = self._starts if a == begin else self._continuations
                fits += [(a, b, pieces[data[a:b]]) for b in range(a + 1, begins[i + 1] + 1) if data[a:b] in pieces]

        # best[p] = (tokens, -score, begin of the last token, its id): smaller is better, and among equals the last
        # token that begins first, which is the longest.
        best = [(0, 0, -1, -1)] + [(math.inf, 0, -1, -1)] * len(data)
        for end in range(1, len(data) + 1):
            best[end] = min(
                (best[a][0] + 1 + (a in marker), best[a][1] - self._scores[v], a, v) for a, b, v in fits if b == end
            )
        ids: list[int] = []
        end = len(data)
        while end > 0:
            _, _, begin, v = best[end]
            ids.append(v)
            if begin in marker:
                ids.append(marker[begin])
            end = begin
        return ids[::-1]
