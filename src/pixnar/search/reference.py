"""The slow, obvious twins of decoding (docs/decoding.md) and of finding near words: tests hold the fast ones equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from pixnar.search.types import DocidHit, DocumentHit, Order, Tokens

Factor = Callable[[Tokens], float]  # of a docid, by its tokens
Docids = Mapping[Tokens, Collection[str]]  # tokens of a docid -> ids of the documents it names, at least one


class SlowQuery(NamedTuple):
    """What a query gives every slot. Slots count from 0 here and from 1 in docs/decoding.md."""

    slots: list[dict[int, float]]  # token -> score
    ends: list[float]  # ends[n] is the end score of a docid of n tokens: ends[0] is never used
    floor: Sequence[float]  # by token

    def score(self, slot: int, token: int) -> float:
        """x_t(v): the score of a token in a slot."""
        return max(self.floor[token], self.slots[slot].get(token, -math.inf))

    def best_score(self, token: int) -> float:
        """x(v): the score of a token in its best slot."""
        return max(self.score(slot, token) for slot in range(len(self.slots)))


def docid_score(
    tokens: Tokens, query: SlowQuery, *, order: Order = "slots", length_norm: float = 0.0, factor: Factor | None = None
) -> float:
    """The score of a docid; -inf says that it is not found. Without `factor`, all factors are 1.

    >>> query = SlowQuery(slots=[{7: -1.0}, {8: -2.0}, {}], ends=[0.0, -5.0, -0.5], floor=[-math.inf] * 9)
    >>> docid_score((7, 8), query), docid_score((7,), query), docid_score((8, 7), query)
    (-3.5, -6.0, -inf)
    >>> docid_score((8, 7), query, order="any")
    -3.5
    """
    n, s = len(tokens), len(query.slots)
    if order == "slots":
        total = _add(query.score(t, v) for t, v in enumerate(tokens[:s]))
    elif order == "any":
        total = _add(query.best_score(v) for v in tokens[:s])
    else:
        total = _best_assignment(tokens[:s], query)
    if n < s:
        total += query.ends[n]
    terms = n + 1 if n < s else s
    scale = 1.0 if factor is None else factor(tokens)
    return float(total * scale / terms**length_norm)


def best_docids(
    docids: Docids,
    query: SlowQuery,
    k: int,
    *,
    order: Order = "slots",
    length_norm: float = 0.0,
    factor: Factor | None = None,
    allowed: Callable[[str], bool] | None = None,
) -> list[DocidHit]:
    """The k best docids that name an allowed document."""
    hits = []
    for tokens, names in docids.items():
        score = docid_score(tokens, query, order=order, length_norm=length_norm, factor=factor)
        documents = sorted((name for name in names if allowed is None or allowed(name)), key=str.encode)
        if score > -math.inf and documents:
            hits.append(DocidHit(tokens, score, tuple(documents)))
    return sorted(hits, key=lambda hit: (-hit.score, hit.tokens))[:k]


def best_documents(
    docids: Docids,
    query: SlowQuery,
    k: int,
    *,
    top: int | None = 1,
    order: Order = "slots",
    length_norm: float = 0.0,
    factor: Factor | None = None,
    allowed: Callable[[str], bool] | None = None,
) -> list[DocumentHit]:
    """The k best documents, each by its `top` best docids (None: by all of them)."""
    found: dict[str, list[DocidHit]] = {}  # the docids of every document, best first
    every = len(docids)
    for hit in best_docids(docids, query, every, order=order, length_norm=length_norm, factor=factor, allowed=allowed):
        for doc_id in hit.documents:
            found.setdefault(doc_id, []).append(hit)
    documents = [
        DocumentHit(doc_id, _log_sum_exp([hit.score for hit in hits[:top]]), hits[0].tokens)
        for doc_id, hits in found.items()
    ]
    return sorted(documents, key=lambda hit: (-hit.score, hit.tokens, hit.doc_id.encode()))[:k]


def beam(
    docids: Docids,
    query: SlowQuery,
    k: int,
    width: int,
    *,
    order: Literal["slots", "any"] = "slots",
    length_norm: float = 0.0,
    factor: Factor | None = None,
    allowed: Callable[[str], bool] | None = None,
) -> list[DocidHit]:
    """The k best of the docids that a beam of some width reaches."""
    s = len(query.slots)
    held: dict[Tokens, float] = {(): 0.0}  # prefixes of t tokens, and their sums
    reached: dict[Tokens, Collection[str]] = {}
    for t in range(s):
        sums = {}
        for prefix in {tokens[: t + 1] for tokens in docids if len(tokens) > t and tokens[:t] in held}:
            last = prefix[t]
            sums[prefix] = held[prefix[:t]] + (query.score(t, last) if order == "slots" else query.best_score(last))
        possible = [prefix for prefix in sums if sums[prefix] > -math.inf]
        held = {prefix: sums[prefix] for prefix in sorted(possible, key=lambda p: (-sums[p], p))[:width]}
        reached |= {tokens: docids[tokens] for tokens in held if tokens in docids}
    reached |= {tokens: names for tokens, names in docids.items() if tokens[:s] in held}
    return best_docids(reached, query, k, order=order, length_norm=length_norm, factor=factor, allowed=allowed)


def _best_assignment(tokens: Tokens, query: SlowQuery) -> float:
    """The largest sum when no two tokens take the same slot.

    Rounding never turns a larger sum into a smaller one, so this is exactly the largest of the sums, each added from
    left to right, over all injective maps.
    """
    best: dict[frozenset[int], float] = {frozenset(): 0.0}  # slots taken by the tokens so far -> the largest sum
    for v in tokens:
        longer: dict[frozenset[int], float] = {}
        for taken, total in best.items():
            for t in set(range(len(query.slots))) - taken:
                longer[taken | {t}] = max(longer.get(taken | {t}, -math.inf), total + query.score(t, v))
        best = longer
    return max(best.values())


def _log_sum_exp(scores: list[float]) -> float:
    """The logarithm of Σ exp(score), for finite scores, the largest first."""
    return scores[0] + math.log(_add(math.exp(score - scores[0]) for score in scores))


def _add(terms: Iterable[float]) -> float:
    """The sum from left to right; the built-in `sum` compensates rounding errors since Python 3.12."""
    total = 0.0
    for term in terms:
        total += term
    return total


_FIRST_UNTRIED = "\u2e80"  # as in native/common/near_texts.hpp


def distance(one: str, other: str) -> int:
    """Damerau-Levenshtein distance (optimal string alignment): inserted, deleted, replaced and swapped characters.

    >>> distance("rome", "rmoe"), distance("rome", "home"), distance("rome", "romeo"), distance("", "tea")
    (1, 1, 1, 3)
    """
    rows = [[i + j if not i * j else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i, a in enumerate(one, 1):
        for j, b in enumerate(other, 1):
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[len(one)][len(other)]


def near(words: Iterable[str], word: str) -> list[str]:
    """The words at distance 1 by an edit that `Lexicon.near` tries, in the order of their UTF-8 bytes."""
    found = {other for other in words if distance(word, other) == 1 and _is_tried(word, other)}
    return sorted(found, key=str.encode)


def _is_tried(word: str, other: str) -> bool:
    """Whether the edit puts no character from U+2E80 on into the word; deletions and swaps put in none."""
    if len(other) < len(word) or sorted(other) == sorted(word):
        return True
    i = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), len(word))
    return other[i] < _FIRST_UNTRIED
