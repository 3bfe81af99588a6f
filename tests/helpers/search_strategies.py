"""Docids that share beginnings and documents, and queries under which many of them tie."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from pixnar.runtime import DocidFactors, HeadRows
from pixnar.search.reference import SlowQuery
from pixnar.search.types import Order, Tokens

VOCAB_SIZE = 12
# The order of UTF-8 is neither that of UTF-16 (～, 😀) nor that of an alphabet (Z, a, é); one id begins another.
DOCUMENTS = ("a", "b", "ab", "Z", "é", "～", "😀", "a b", *(f"d{i}" for i in range(32)))

Names = dict[Tokens, set[str]]

_tokens = st.integers(0, VOCAB_SIZE - 1)
_grid = st.integers(-12, 4).map(lambda quarters: quarters / 4)  # sums of these are exact, and often equal
_wild = st.floats(width=32, allow_nan=False, allow_infinity=False)


def _number(draw: st.DrawFn, wild: bool) -> float:
    """A score: mostly from the grid, now and then -inf, and where allowed any float32."""
    kind = draw(st.integers(0, 15))
    if kind == 15:
        return -math.inf
    return draw(_wild if wild and kind == 14 else _grid)


@st.composite
def small_tables(draw: st.DrawFn) -> Names:
    """A few docids that grow from a few stems."""
    docids: Names = {}
    tokens = st.integers(0, draw(st.integers(1, VOCAB_SIZE - 1)))
    stems = draw(st.lists(st.lists(tokens, max_size=4), min_size=1, max_size=3))
    for stem, tail, documents in draw(
        st.lists(
            st.tuples(
                st.sampled_from(stems),
                st.lists(tokens, max_size=3),
                st.sets(st.sampled_from(DOCUMENTS[:10]), min_size=1, max_size=3),
            ),
            min_size=draw(st.sampled_from([4, 1, 8, 0])),
            max_size=16,
        )
    ):
        if stem or tail:
            docids.setdefault((*stem, *tail), set()).update(documents)
    return docids


@st.composite
def large_tables(draw: st.DrawFn) -> Names:
    """Up to 200 docids; drawn from a seed, because drawing them one by one is slow."""
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    alphabet = rng.sample(range(VOCAB_SIZE), rng.randint(2, VOCAB_SIZE))
    docids: Names = {}
    for _ in range(rng.randint(30, 200)):
        stem = rng.choice([(), *docids]) if rng.random() < 0.7 else ()
        keep = stem[: rng.randint(0, len(stem))][:6]
        tail = rng.choices(alphabet, k=rng.randint(1, 7 - len(keep)))
        docids.setdefault((*keep, *tail), set()).update(rng.sample(DOCUMENTS, rng.randint(1, 3)))
    return docids


def tables() -> st.SearchStrategy[Names]:
    """Docids of 1 to 7 tokens below VOCAB_SIZE and the documents they name; mostly few, sometimes up to 200."""
    return st.integers(0, 4).flatmap(lambda kind: large_tables() if kind == 4 else small_tables())


@st.composite
def queries(draw: st.DrawFn, vocab_size: int = VOCAB_SIZE, slots: int | None = None, *, wild: bool = True) -> SlowQuery:
    """A query of 1 to 6 slots. If not `wild`, all scores lie on the grid."""
    s = draw(st.sampled_from([3, 4, 2, 6, 1, 5])) if slots is None else slots
    floors = draw(st.sampled_from(["strict", "finite", "mixed"]))
    floor = [
        -math.inf
        if floors == "strict" or (floors == "mixed" and draw(st.booleans()))
        else draw(_wild if wild and draw(st.integers(0, 15)) == 15 else _grid.map(lambda value: value - 3.0))
        for _ in range(vocab_size)
    ]
    everything = st.just(set(range(vocab_size)))
    members = st.sampled_from([everything, everything, st.sets(st.integers(0, vocab_size - 1))]).flatmap(lambda x: x)
    return SlowQuery(
        slots=[{v: _number(draw, wild) for v in sorted(draw(members))} for _ in range(s)],
        ends=[_number(draw, wild) for _ in range(s)],
        floor=floor,
    )


def some_factors(seed: int, wide: float, slots: int) -> DocidFactors:
    """Factors from 2^-wide to 2^wide, by norms of which some lie beyond the ends, and some are 0."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(VOCAB_SIZE + 1, 3)) * rng.choice([0, 2**-wide, 1, 2**wide], size=(VOCAB_SIZE + 1, 1))
    head = HeadRows.build(rows.astype(np.float32), format="float32")
    return DocidFactors(head, slots, 2**-wide, 2**wide, threads=1)


def factors(slots: int) -> st.SearchStrategy[DocidFactors | None]:
    """None, all near 1, or far apart."""
    wide = st.sampled_from([0.1, 1.0, 8.0])
    return st.none() | st.builds(some_factors, st.integers(0, 2**32 - 1), wide, st.just(slots))


class Settings(NamedTuple):
    order: Order
    length_norm: float
    k: int
    allowed: frozenset[str] | None


def settings_of_decoding(*orders: Order) -> st.SearchStrategy[Settings]:
    """How to decode, in one of the orders given, or in any."""
    return st.builds(
        Settings,
        order=st.sampled_from(orders or ("slots", "any", "assigned")),
        length_norm=st.sampled_from([0.0, 0.5, 1.0, 0.3]),
        k=st.sampled_from([1, 2, 5, 1000]),
        allowed=st.none()
        | st.just(frozenset(DOCUMENTS))
        | st.frozensets(st.sampled_from(DOCUMENTS[:10]))  # the empty set is one of them
        | st.frozensets(st.sampled_from(DOCUMENTS), min_size=3),
    )


class Change(NamedTuple):
    add: list[tuple[str, Tokens]]
    remove_documents: list[str]
    remove_docids: list[Tokens]
    remove_pairs: list[tuple[str, Tokens]]

    def applied_to(self, docids: Names) -> Names:
        """The docids after the change: removals first; a docid that names no document is gone."""
        changed = {
            tokens: {
                doc_id
                for doc_id in documents
                if doc_id not in self.remove_documents and (doc_id, tokens) not in self.remove_pairs
            }
            for tokens, documents in docids.items()
            if tokens not in self.remove_docids
        }
        for doc_id, tokens in self.add:
            changed.setdefault(tokens, set()).add(doc_id)
        return {tokens: documents for tokens, documents in changed.items() if documents}


@st.composite
def changes(draw: st.DrawFn, docids: Names) -> Change:
    """A change that removes what is there, and adds old and new docids to old and new documents."""
    present = sorted(docids)
    new = st.lists(_tokens, min_size=1, max_size=7).map(tuple)
    pairs = [(doc_id, tokens) for tokens in present for doc_id in sorted(docids[tokens])]
    grown = st.sampled_from(present).flatmap(lambda tokens: _tokens.map(lambda v: (*tokens[:6], v))) if present else new
    some = st.sampled_from(present) if present else new
    return Change(
        add=draw(st.lists(st.tuples(st.sampled_from(DOCUMENTS[:10]), some | grown | new), max_size=6)),
        remove_documents=draw(
            st.lists(st.sampled_from(sorted({d for d, _ in pairs})), max_size=2, unique=True) if pairs else st.just([])
        ),
        remove_docids=draw(st.lists(st.sampled_from(present), max_size=2, unique=True) if present else st.just([])),
        remove_pairs=draw(st.lists(st.sampled_from(pairs), max_size=3, unique=True) if pairs else st.just([])),
    )
