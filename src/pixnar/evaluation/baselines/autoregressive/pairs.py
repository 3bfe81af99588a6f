"""Training pairs of the autoregressive baselines: an input, the view, and the tokens that should be generated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from pixnar.base.errors import MissingPartError, PixnarError
from pixnar.evaluation.baselines.autoregressive.collection import Collection, Pieces, Tokens, TokenTexts
from pixnar.evaluation.baselines.autoregressive.ids import END
from pixnar.evaluation.baselines.entries import TEXT

BODY, TITLES, QUERY, DENOISING = range(4)
"""Views: n-grams of documents, titles, whole docids, and the repair of a damaged docid."""
VIEWS = 4

SPAN = 10
"""Tokens of an n-gram, at most."""
WHOLE = 30
"""Tokens of a title or docid that is generated as a whole, at most."""

_SHORTEST = 3  # tokens that a span of a docid has at least, if the docid has them
_LOST, _MASKED, _SHUFFLED = 0.15, 0.15, 0.5  # words of a damaged docid, and damaged docids with their words shuffled
_TEXT_PIECES = 32


class Pair(NamedTuple):
    """One example of training."""

    text: str
    view: int
    target: Tokens


class PairSource(Protocol):
    """Pairs by a running number, the same in every run."""

    def __len__(self) -> int:
        """How many make an epoch."""
        ...

    def pair(self, number: int) -> Pair:
        """One of them; numbers go on over epochs."""
        ...


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The share of pairs that each view has."""

    body: float = 0.45
    title: float = 0.15
    query: float = 0.2
    denoising: float = 0.2

    @classmethod
    def with_denoising(cls, share: float) -> Shares:
        """The usual shares of the other views, in what this one leaves.

        >>> [round(value, 3) for value in Shares.with_denoising(0.6).values()]
        [0.225, 0.075, 0.1, 0.6]
        """
        usual = cls()
        left = (1 - share) / (1 - usual.denoising)
        return cls(body=usual.body * left, title=usual.title * left, query=usual.query * left, denoising=share)

    def check(self) -> None:
        """Raise unless they are shares."""
        values = self.values()
        if min(values) < 0 or not math.isclose(sum(values), 1.0, abs_tol=1e-6):
            raise PixnarError(f"shares {values} are not possible: give four numbers from 0 that sum to 1")

    def values(self) -> list[float]:
        """The shares in the order of the views."""
        return [getattr(self, field.name) for field in fields(self)]


class ViewPairs:
    """Pairs of all views: an input is a docid or train query, and the target comes from its document.

    An epoch has every input once, in random order. Its view is drawn by the shares among those that it can serve: a
    document without a title has no title to generate. A damaged docid has words that are lost, masked or shuffled.
    """

    def __init__(
        self, collection: Collection, texts: TokenTexts, shares: Shares, *, mask: str | None = None, seed: int = 0
    ) -> None:
        shares.check()
        self.collection, self.texts, self.mask, self.seed = collection, texts, mask, seed
        self._shares, self._inputs = np.array(shares.values()), collection.inputs()
        self._order = lru_cache(maxsize=2)(lambda epoch: _shuffled(len(self._inputs), seed, epoch))
        self._targets = (self._span, self._title, self._docid, self._repaired)
        if not self._inputs:
            raise MissingPartError("there is nothing to train on: give docids (docids.jsonl) or train queries")

    def __len__(self) -> int:
        return len(self._inputs)

    def pair(self, number: int) -> Pair:
        """The pair of a number; where an input can serve no view, that of another input."""
        epoch, place = divmod(number, len(self))
        rng = np.random.default_rng([self.seed, number])
        for ahead in range(len(self)):
            text, document, docid = self._inputs[self._order(epoch)[(place + ahead) % len(self)]]
            shares = self._shares.copy()
            while shares.any():
                view = int(rng.choice(VIEWS, p=shares / shares.sum()))
                target = self._targets[view](document, docid, text, rng)
                if target:
                    return Pair(self._damaged(text, rng) if view == DENOISING else text, view, target)
                shares[view] = 0.0
        raise MissingPartError(
            "there is nothing to train on: no document has text or a second docid; give other shares, or more docids"
        )

    def _span(self, document: int, docid: int, text: str, rng: np.random.Generator) -> Tokens:
        """Up to ten tokens of the document's text or of another of its docids, never of the input itself."""
        siblings = [i for i in self.collection.named[document] if i != docid] if self.collection.over != TEXT else []
        body = self.texts.bodies[document]
        given = self.texts.docids[docid] if docid >= 0 else self.texts.queries[-1 - docid]
        if body and (not siblings or rng.random() < 0.5):
            starts = _starts(len(body), _occurrences(body, given))
            if len(starts):
                return _near(body, starts, set(given), rng)
        if not siblings:
            return ()
        chosen = self.texts.docids[siblings[int(rng.integers(len(siblings)))]]
        start = int(rng.integers(max(1, len(chosen) - _SHORTEST + 1)))
        return chosen[start : start + SPAN]

    def _title(self, document: int, docid: int, text: str, rng: np.random.Generator) -> Tokens:
        title = self.texts.titles[document]
        if not 0 < len(title) <= WHOLE - 2 or self.collection.titles[document] == text:
            return ()
        return self.texts.title(document)

    def _docid(self, document: int, docid: int, text: str, rng: np.random.Generator) -> Tokens:
        """Another docid of the document."""
        others = [i for i in self.collection.named[document] if i != docid and self.collection.docids[i] != text]
        others = [i for i in others if len(self.texts.docids[i]) <= WHOLE - 2]
        return self.texts.docid(others[int(rng.integers(len(others)))]) if others else ()

    def _repaired(self, document: int, docid: int, text: str, rng: np.random.Generator) -> Tokens:
        return (*self.texts.docids[docid][:WHOLE], END) if docid >= 0 else ()

    def _damaged(self, text: str, rng: np.random.Generator) -> str:
        words = []
        for word, chance in zip(text.split(), rng.random(len(text.split())).tolist(), strict=True):
            if chance >= _LOST + _MASKED:
                words.append(word)
            elif chance >= _LOST and self.mask:
                words.append(self.mask)
        if rng.random() < _SHUFFLED:
            words = [words[i] for i in rng.permutation(len(words))]
        return " ".join(words)


class IdPairs:
    """Pairs of DSI: a docid, the first word pieces of the text, or a train query, and the id of the document."""

    def __init__(self, collection: Collection, ids: Sequence[Tokens], pieces: Pieces, *, seed: int = 0) -> None:
        self.ids, self.seed = ids, seed
        self._examples = [(text, document) for text, document, _ in collection.inputs()]
        firsts = collection.first_pieces(pieces, _TEXT_PIECES)
        self._examples += [(text, document) for document, text in enumerate(firsts) if text]
        self._order = lru_cache(maxsize=2)(lambda epoch: _shuffled(len(self._examples), seed, epoch))
        if not self._examples:
            raise MissingPartError("there is nothing to train on: give docids (docids.jsonl), text or train queries")

    def __len__(self) -> int:
        return len(self._examples)

    def pair(self, number: int) -> Pair:
        """The pair of a number."""
        epoch, place = divmod(number, len(self))
        text, document = self._examples[self._order(epoch)[place]]
        return Pair(text, 0, (*self.ids[document], END))


def _shuffled(count: int, seed: int, epoch: int) -> list[int]:
    order: list[int] = np.random.default_rng([seed, 0, epoch]).permutation(count).tolist()
    return order


def _occurrences(body: Tokens, given: Tokens) -> list[range]:
    """The places in a text where an input stands."""
    size = len(given)
    if not size:
        return []
    return [range(i, i + size) for i in range(len(body) - size + 1) if body[i : i + size] == given]


def _starts(size: int, taken: Sequence[range]) -> list[int]:
    """Where spans may start in a text, so that none has a token of the places that are taken."""
    count = max(1, size - SPAN + 1)
    blocked = {start for places in taken for start in range(places.start - min(SPAN, size) + 1, places.stop)}
    return [start for start in range(count) if start not in blocked]


def _near(body: Tokens, starts: Sequence[int], given: set[int], rng: np.random.Generator) -> Tokens:
    """A span of a text, drawn by exp(how many distinct tokens it has in common with the input)."""
    spans = [body[start : start + SPAN] for start in starts]
    weights = np.exp([float(len(given.intersection(span))) for span in spans])
    return spans[int(rng.choice(len(spans), p=weights / weights.sum()))]
