from __future__ import annotations

import time
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import PixnarError
from pixnar.train.pairs import Epoch, Pairs

RELATION = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 5)), max_size=40)


def pairs_of(rows: list[tuple[int, int]], asked: list[tuple[int, int]], **settings: float) -> Pairs:
    docids, queries = np.array(rows, int).reshape(-1, 2), np.array(asked, int).reshape(-1, 2)
    columns = (docids[:, 0], docids[:, 1], queries[:, 0], queries[:, 1])
    return Pairs(12, *columns, **settings)  # type: ignore[arg-type]


def rows_of(epoch: Epoch) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in epoch), strict=True))


@given(RELATION, RELATION, st.integers(1, 5), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 3))
def test_what_an_epoch_holds(
    rows: list[tuple[int, int]], asked: list[tuple[int, int]], per_document: int, self_share: float, number: int
) -> None:
    docids, queries = defaultdict(set), defaultdict(set)
    for docid, document in rows:
        docids[document].add(docid)
    for query, document in asked:
        if document in docids:
            queries[query].add(document)
    pairs = pairs_of(rows, asked, per_document=per_document, self_share=self_share, seed=3)
    epoch = rows_of(pairs.epoch(number))
    assert len(epoch) == len(pairs)
    of_document, of_query = Counter[int](), Counter[int]()
    for source, target, document in epoch:
        assert target in docids[document]
        if source >= 12:
            assert document in queries[source - 12]
            of_query[source - 12] += 1
            continue
        assert source in docids[document]
        of_document[document] += 1
        if self_share == 0.0:
            assert (source == target) == (len(docids[document]) == 1)
        if self_share == 1.0:
            assert source == target
    assert len({(source, document) for source, _, document in epoch}) == len(epoch)  # no input twice
    assert of_document == {document: min(len(names), per_document) for document, names in docids.items()}
    assert of_query == {query: min(len(found), per_document) for query, found in queries.items()}


def test_every_sibling_is_drawn_alike() -> None:
    pairs = pairs_of([(docid, 0) for docid in range(4)], [(0, 0)], self_share=0.0)
    seen = Counter((source, target) for e in range(900) for source, target, _ in rows_of(pairs.epoch(e)))
    assert len(seen) == 4 * 3 + 4
    siblings = [n for (source, _), n in seen.items() if source < 12]
    assert min(siblings) > 230
    assert max(siblings) < 370
    assert min(n for (source, _), n in seen.items() if source == 12) > 160


def test_the_share_that_answers_with_itself() -> None:
    n = 20_000
    epoch = Pairs(n, np.arange(n), np.arange(n) // 5, self_share=0.1).epoch(0)
    assert 0.09 < float((epoch.inputs == epoch.targets).mean()) < 0.11


def test_all_docids_are_inputs_without_a_limit() -> None:
    pairs = Pairs(60, np.arange(60), np.arange(60) // 50, np.zeros(30, int), np.arange(30) % 2)
    assert len(pairs) == 62
    assert sorted(pairs.epoch(0).inputs.tolist()) == [*range(60), 60, 60]
    assert pairs.per_epoch(3).tolist() == [51, 11, 0]


def test_every_docid_of_a_large_document_has_its_turn() -> None:
    pairs = Pairs(50, np.arange(50), np.zeros(50, int), per_document=20)
    seen = np.zeros(50, int)
    for number in range(100):
        inputs = pairs.epoch(number).inputs
        assert len(np.unique(inputs)) == 20
        seen[inputs] += 1
    assert seen.min() > 20


def test_a_step_is_decided_by_seed_and_number() -> None:
    def fresh(seed: int) -> Pairs:
        return Pairs(300, np.arange(300), np.arange(300) // 3, np.arange(40), np.arange(40), seed=seed)

    pairs, steps = fresh(1), range(60)
    batches = [pairs.batch(step, 32) for step in steps]
    for step in (0, 9, 10, 11, 59):  # 340 pairs: ten steps an epoch
        again = fresh(1).batch(step, 32)
        assert all(np.array_equal(a, b) for a, b in zip(again, batches[step], strict=True))
    assert pairs.steps_per_epoch(32) == 10
    assert {len(batch.inputs) for batch in batches} == {32}
    assert len({tuple(batch.inputs.tolist()) for batch in batches}) == 60
    assert rows_of(fresh(2).batch(0, 32)) != rows_of(batches[0])
    together = sorted(row for batch in batches[:10] for row in rows_of(batch))
    assert set(together) < set(rows_of(pairs.epoch(0)))


def test_an_epoch_smaller_than_a_batch_is_one_batch() -> None:
    pairs = Pairs(3, [0, 1, 2], [0, 0, 1])
    assert pairs.steps_per_epoch(256) == 1
    assert sorted(pairs.batch(7, 256).inputs.tolist()) == [0, 1, 2]


@given(RELATION, st.lists(st.integers(0, 8), max_size=12), st.integers(1, 4), st.booleans())
def test_siblings(rows: list[tuple[int, int]], wanted: list[int], most: int, excluding: bool) -> None:
    docids = defaultdict(set)
    for docid, document in rows:
        docids[document].add(docid)
    pairs = pairs_of(rows, [])
    exclude = [min(docids[document], default=-1) for document in wanted] if excluding else None
    found, offsets = pairs.siblings(wanted, most, 5, exclude=exclude)
    again, _ = pairs_of(rows, []).siblings(wanted, most, 5, exclude=exclude)
    assert np.array_equal(found, again)
    assert len(offsets) == len(wanted) + 1
    assert offsets[-1] == len(found)
    for i, document in enumerate(wanted):
        names = set(docids[document])
        if exclude is not None and len(names) > 1:
            names -= {exclude[i]}
        drawn = found[offsets[i] : offsets[i + 1]].tolist()
        assert len(set(drawn)) == len(drawn) == min(most, len(names))
        assert set(drawn) <= names


def test_siblings_change_with_the_step() -> None:
    pairs = Pairs(100, np.arange(100), np.zeros(100, int))
    drawn = {tuple(pairs.siblings([0], 3, step)[0].tolist()) for step in range(20)}
    assert len(drawn) > 15


def test_what_cannot_be() -> None:
    with pytest.raises(PixnarError, match=r"nothing to train on.*docids\.jsonl"):
        Pairs(0, [], []).batch(0, 8)
    with pytest.raises(ValueError, match="not all in 0"):
        Pairs(2, [0, 2], [0, 0])
    with pytest.raises(ValueError, match="one length"):
        Pairs(2, [0, 1], [0])
    with pytest.raises(ValueError, match="per_document"):
        Pairs(2, [0, 1], [0, 0], per_document=-1)


def test_a_large_epoch_is_quick() -> None:
    random = np.random.default_rng(0)
    n, documents = 600_000, 30_000
    pairs = Pairs(n, np.arange(n), random.integers(0, documents, n), np.arange(50_000), np.arange(50_000) % documents)
    started = time.process_time()
    assert len(pairs.epoch(1).inputs) > 500_000
    assert time.process_time() - started < 2.0  # measured: 0.35
    started = time.process_time()
    for step in range(pairs.steps_per_epoch(256), pairs.steps_per_epoch(256) + 500):
        pairs.batch(step, 256)
    assert time.process_time() - started < 0.5
