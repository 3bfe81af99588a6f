"""FM-index (suffix array): every substring of a corpus of token ids, how often it occurs, where, and what follows it.

It answers what a true FM-index answers, without the compression. Each document ends with a separator of its own, so
that no pattern crosses from one document into the next.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import read_container, write_container

Ints = NDArray[np.int64]

_KIND, _VERSION = "suffixes", 1
_MOST = 2**32 - 1  # tokens and separators, so that a place fits 32 bits
_GATHERED = 2048  # rows of a span that are read at once; in larger ones the borders are searched


class Span(NamedTuple):
    """Rows low … high - 1 of a suffix array: the places whose next `depth` tokens are those of one pattern."""

    low: int
    high: int
    depth: int

    @property
    def size(self) -> int:
        """How often the pattern occurs."""
        return self.high - self.low


class Substrings:
    """A suffix array over the tokens of documents; a document is known by its number.

    >>> index = Substrings.of([[7, 8, 7, 9], [], [8, 7]])
    >>> index.count([8, 7]), index.allowed(index.range([7])).tolist()
    (2, [8, 9])
    >>> index.document_of(index.locate(index.range([8, 7]))).tolist()
    [0, 2]
    """

    def __init__(self, text: NDArray[np.uint32], suffixes: NDArray[np.uint32], starts: Ints) -> None:
        """Over arrays that are not copied: `text` has 0 for a separator and otherwise a token + 1."""
        self.text, self.suffixes, self.starts = text, suffixes, starts

    @classmethod
    def of(cls, documents: Iterable[Sequence[int] | Ints]) -> Substrings:
        """Sort the suffixes of some documents."""
        texts = list(documents)
        lengths = np.array([len(text) for text in texts], np.int64)
        tokens = np.fromiter(chain.from_iterable(texts), np.int64, int(lengths.sum()))
        starts = np.zeros(len(texts), np.int64)
        np.cumsum(lengths[:-1] + 1, out=starts[1:])
        _check(tokens, lengths)
        separators = starts + lengths
        symbols = np.empty(len(tokens) + len(texts), np.int64)
        is_token = np.ones(len(symbols), np.bool_)
        is_token[separators] = False
        symbols[is_token] = tokens + len(texts)
        symbols[separators] = np.arange(len(texts))
        suffixes = suffix_array(symbols)
        text = np.where(is_token, symbols - (len(texts) - 1), 0)
        return cls(text.astype(np.uint32), suffixes.astype(np.uint32), starts)

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.starts)

    @property
    def n_tokens(self) -> int:
        """The tokens of all documents, separators not counted."""
        return len(self.text) - len(self.starts)

    @cached_property
    def token_counts(self) -> Ints:
        """How often each token occurs, up to the largest that does."""
        return self._firsts[2:] - self._firsts[1:-1]

    def root(self) -> Span:
        """The span of the empty pattern: every token of every document."""
        return Span(len(self.starts), len(self.text), 0)

    def child(self, span: Span, token: int) -> Span:
        """The span of the pattern with one more token; it is empty if that occurs nowhere."""
        symbol, depth = int(token) + 1, span.depth
        if depth == 0:
            low, high = (int(self._firsts[min(s, len(self._firsts) - 1)]) for s in (symbol, symbol + 1))
        elif span.size <= _GATHERED:
            found = self._symbols(np.arange(span.low, span.high), depth)
            low, high = (span.low + int(found.searchsorted(s)) for s in (np.uint32(symbol), np.uint32(symbol + 1)))
        else:
            rows = range(span.low, span.high)
            low, high = (span.low + bisect_left(rows, s, key=self._reader(depth)) for s in (symbol, symbol + 1))
        return Span(low, high, depth + 1)

    def range(self, pattern: Iterable[int]) -> Span:
        """The span of a pattern."""
        span = self.root()
        for token in pattern:
            span = self.child(span, token)
        return span

    def count(self, pattern: Iterable[int]) -> int:
        """How often a pattern occurs; that of the empty one is the number of tokens."""
        return self.range(pattern).size

    def allowed(self, span: Span) -> Ints:
        """The tokens that follow a pattern somewhere, ascending."""
        return self.continuations(span)[0]

    def continuations(self, span: Span) -> tuple[Ints, Ints]:
        """The tokens that follow a pattern somewhere, ascending, and how often each does."""
        if span.depth == 0:
            return self._first_tokens
        if span.size <= _GATHERED:
            symbols, counts = np.unique(self._symbols(np.arange(span.low, span.high), span.depth), return_counts=True)
        else:
            borders = self._borders(span)
            symbols, counts = self._symbols(borders, span.depth), np.diff(borders, append=span.high)
        tokens = symbols.astype(np.int64) - 1
        inside = tokens >= 0
        return tokens[inside], counts[inside].astype(np.int64)

    def locate(self, span: Span) -> Ints:
        """The places in the text where a pattern begins, ascending."""
        return np.sort(self.suffixes[span.low : span.high]).astype(np.int64)

    def document_of(self, places: Ints) -> Ints:
        """The documents that some places of the text are in."""
        return self.starts.searchsorted(places, "right") - 1

    def tokens(self, document: int) -> Ints:
        """The tokens of a document."""
        end = self.starts[document + 1] if document + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[document] : end - 1].astype(np.int64) - 1

    @cached_property
    def ranks(self) -> Ints:
        """The row of every place of the text: a pattern is there if the row is in its span."""
        ranks = np.empty(len(self.suffixes), np.int64)
        ranks[self.suffixes] = np.arange(len(ranks))
        return ranks

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file."""
        arrays: dict[str, NDArray[Any]] = {"text": self.text, "suffixes": self.suffixes, "starts": self.starts}
        write_container(path, _KIND, _VERSION, {"documents": len(self), "tokens": self.n_tokens}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Substrings:
        """Map what `save` wrote."""
        found = read_container(path, _KIND, _VERSION)
        try:
            text, suffixes, starts = (found.arrays[name] for name in ("text", "suffixes", "starts"))
            sizes = found.meta["documents"], found.meta["tokens"]
        except KeyError as error:
            raise FileFormatError(f"{path} does not say {error}: copy or build the baseline again") from error
        if (len(starts), len(text) - len(starts)) != sizes or len(suffixes) != len(text):
            raise FileFormatError(f"{path} has arrays that do not fit together: copy or build the baseline again")
        return cls(text, suffixes, starts)

    @cached_property
    def _firsts(self) -> Ints:
        """The row at which each symbol begins to be the first of a suffix, and the number of rows."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.text, minlength=1))]).astype(np.int64)

    @cached_property
    def _first_tokens(self) -> tuple[Ints, Ints]:
        tokens = np.flatnonzero(self.token_counts)
        return tokens, self.token_counts[tokens]

    def _symbols(self, rows: Ints, depth: int) -> NDArray[np.uint32]:
        return self.text[self.suffixes[rows].astype(np.int64) + depth]

    def _reader(self, depth: int) -> Any:
        text, suffixes = self.text, self.suffixes
        return lambda row: int(text[int(suffixes[row]) + depth])

    def _borders(self, span: Span) -> Ints:
        """The first row of each run of equal next symbols, by bisecting all intervals whose ends differ at once."""
        left, right = np.array([span.low]), np.array([span.high - 1])
        first, last = self._symbols(left, span.depth), self._symbols(right, span.depth)
        borders = [left]
        while len(left):
            near = (first != last) & (right - left == 1)
            borders.append(right[near])
            far = (first != last) & ~near
            left, right, first, last = left[far], right[far], first[far], last[far]
            middle = (left + right) // 2
            inner = self._symbols(middle, span.depth)
            left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
            first, last = np.concatenate([first, inner]), np.concatenate([inner, last])
        return np.sort(np.concatenate(borders))


def suffix_array(symbols: Ints) -> Ints:
    """The order of all suffixes, by prefix doubling in which only rows that still tie are sorted again.

    The last symbol occurs once; other symbols that occur once end comparisons as well.

    >>> suffix_array(np.array([1, 2, 1, 2, 0])).tolist()
    [4, 2, 0, 3, 1]
    """
    size = len(symbols)
    keys, depth = _packed(symbols)
    order = np.argsort(keys, kind="stable")
    rows = np.arange(size)
    ranks, keys = np.empty(size, np.int64), keys[order]
    while size:
        first = np.ones(len(rows), np.bool_)
        first[1:] = keys[1:] != keys[:-1]
        ranks[order[rows]] = rows[np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))]
        ties = ~first
        ties[:-1] |= ~first[1:]
        rows = rows[ties]
        if not len(rows):
            break
        places = order[rows]
        keys = ranks[places] * size + ranks[places + depth]  # equal so far, so a separator is still ahead of both
        again = np.argsort(keys, kind="stable")
        order[rows], keys = places[again], keys[again]
        depth *= 2
    return order


def _packed(symbols: Ints) -> tuple[Ints, int]:
    """At each place as many symbols as 63 bits hold, the first in the highest, and how many those are."""
    bits = max(1, int(symbols.max(initial=0)).bit_length())
    width = max(1, 63 // bits)
    keys = np.zeros(len(symbols), np.int64)
    for ahead in range(width):
        keys <<= bits
        keys[: max(0, len(symbols) - ahead)] |= symbols[ahead:]
    return keys, width


def _check(tokens: Ints, lengths: Ints) -> None:
    if len(tokens) + len(lengths) > _MOST:
        raise PixnarError(
            f"the corpus has {len(tokens):,} tokens: an index takes {_MOST:,} at most; index a part of it"
        )
    wrong = np.flatnonzero((tokens < 0) | (tokens >= _MOST))
    if len(wrong):
        document = int(np.searchsorted(np.cumsum(lengths), wrong[0], "right"))
        raise PixnarError(f"document {document} has the token {tokens[wrong[0]]}: tokens are 0 to {_MOST - 1:,}")
