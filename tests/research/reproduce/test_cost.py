"""What decoding costs: postings against a count by hand, and the engine's own count of what it reads."""

from __future__ import annotations

import numpy as np
import pytest

from pixnar.research.reproduce.vocabularies import count_postings, occurrences
from pixnar.search import Decoder, SlotScores
from pixnar.table import DocidTable

VOCABULARY, SLOTS = 12, 4


def _table(random: np.random.Generator, docids: int) -> DocidTable:
    made: dict[tuple[int, ...], list[str]] = {}
    for i in range(docids):
        tokens = tuple(random.integers(0, VOCABULARY, int(random.integers(1, 7))).tolist())
        made.setdefault(tokens, []).append(f"d{i % 9}")
    return DocidTable.in_memory(made, vocab_size=VOCABULARY)


@pytest.mark.parametrize("seed", range(5))
def test_postings_are_counted_place_by_place(seed: int) -> None:
    random = np.random.default_rng(seed)
    table = _table(random, 60)
    counts = occurrences(table, SLOTS)
    named = [np.flatnonzero(random.random(VOCABULARY) < 0.4).tolist() for _ in range(SLOTS)]
    scores = SlotScores.sparse([(ids, np.ones(len(ids))) for ids in named], np.zeros(SLOTS))
    by_hand = sum(token in named[place] for tokens, _ in table for place, token in enumerate(tokens[:SLOTS]))
    assert count_postings(scores, counts, by_slot=True) == by_hand
    anywhere = SlotScores.sparse([(named[0], np.ones(len(named[0])))] + [([], [])] * (SLOTS - 1), np.zeros(SLOTS))
    by_hand = sum(token in named[0] for tokens, _ in table for token in tokens[:SLOTS])
    assert count_postings(anywhere, counts, by_slot=False) == by_hand


@pytest.mark.parametrize("seed", range(5))
def test_an_engine_without_bounds_reads_all_postings(seed: int) -> None:
    random = np.random.default_rng(seed)
    table = _table(random, 200)
    ids = np.flatnonzero(random.random(VOCABULARY) < 0.5)
    none = (np.zeros(0, np.uint32), np.zeros(0, np.float32))
    scores = SlotScores.sparse([(ids, random.random(len(ids)) + 0.1)] + [none] * (SLOTS - 1), np.zeros(SLOTS))
    decoder = Decoder(table, slots=SLOTS, floor=np.zeros(VOCABULARY))
    found = decoder.documents(scores, 3, aggregate="logsumexp", order="any", engine="accumulate")
    postings = count_postings(scores, occurrences(table, SLOTS), by_slot=False)
    assert postings <= found.work <= postings + table.documents
