"""The native decoder against its slow twin: every engine, order, filter and state of the table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar.search import Decoded, Decoder, SlotScores
from pixnar.search.decoder import Engine
from pixnar.search.reference import SlowQuery, beam, best_docids, best_documents
from pixnar.search.types import Order, Tokens
from pixnar.table import DocidTable
from tests.helpers.decoding import (
    AGGREGATES,
    ENGINES,
    EVERY,
    ORDERS,
    Row,
    assert_best,
    assert_exact,
    assert_true_scores,
    close,
    decoder_for,
    dense,
    docid_rows,
    document_rows,
    expected,
    factor_of,
    sparse,
    ways,
)
from tests.helpers.search_strategies import (
    DOCUMENTS,
    VOCAB_SIZE,
    Change,
    Names,
    Settings,
    changes,
    factors,
    large_tables,
    queries,
    settings_of_decoding,
    some_factors,
    tables,
)

some = settings(max_examples=150)


def states(docids: Names, data: st.DataObject) -> Iterator[tuple[DocidTable, Names]]:
    """A table as it was built, then with changes on top, then compacted; always the same table."""
    table = DocidTable.in_memory(docids, VOCAB_SIZE)
    yield table, docids
    for _ in range(data.draw(st.integers(0, 3), label="changes")):
        change: Change = data.draw(changes(docids), label="change")
        table.change(**change._asdict())
        docids = change.applied_to(docids)
        yield table, docids
    table.compact()
    yield table, docids


def check_docids(docids: Names, query: SlowQuery, how: Settings, data: st.DataObject, *, exactly: bool) -> None:
    decoder = None
    scaling = data.draw(factors(len(query.slots)), label="factors")
    same = expected(how, scaling)
    for table, alive in states(docids, data):
        decoder = decoder or decoder_for(table, query, scaling)  # made once: it follows the table
        every = docid_rows(best_docids(alive, query, EVERY, **same))
        for engine in ENGINES if how.allowed is None else (*ENGINES, "enumerate"):
            for way in ways(how):
                found = decoder.docids(sparse(query), how.k, engine=engine, **way)
                assert_best(docid_rows(found.hits), every, how.k, exactly=exactly)
                assert_exact(found)


def lifted(query: SlowQuery, data: st.DataObject) -> SlowQuery:
    """The same query, or one with sums around zero, or above: factors turn the order of negative scores around."""
    by = data.draw(st.sampled_from([0.0, 1.5, 8.0]), label="lift")
    slots = [{v: score + by for v, score in slot.items()} for slot in query.slots]
    return SlowQuery(slots, [end + by for end in query.ends], [floor + by for floor in query.floor])


@pytest.mark.parametrize("order", ORDERS)
@some
@given(st.data())
def test_docids_equal_the_reference(order: Order, data: st.DataObject) -> None:
    query = data.draw(queries(wild=order != "assigned"))  # on the grid all sums are exact, whatever their order
    if data.draw(st.booleans(), label="tame"):
        query = lifted(data.draw(queries(wild=False)), data)
    check_docids(data.draw(tables()), query, data.draw(settings_of_decoding(order)), data, exactly=True)


tame = st.floats(-100, 100, width=32)


@st.composite
def tame_queries(draw: st.DrawFn) -> SlowQuery:
    """Queries whose sums are not exact, but not far off either."""
    query = draw(queries(wild=False))
    return query._replace(slots=[{v: draw(tame) for v in slot} for slot in query.slots])


@some
@given(tables(), tame_queries(), settings_of_decoding("assigned"), st.data())
def test_assigned_docids_with_inexact_sums(docids: Names, query: SlowQuery, how: Settings, data: st.DataObject) -> None:
    check_docids(docids, query, how, data, exactly=False)


@pytest.mark.parametrize("order", ORDERS)
@some
@given(st.data())
def test_documents_equal_the_reference(order: Order, data: st.DataObject) -> None:
    docids, how = data.draw(tables()), data.draw(settings_of_decoding(order))
    query = data.draw(queries(wild=order != "assigned"))
    if data.draw(st.booleans(), label="tame"):
        query = lifted(data.draw(queries(wild=False)), data)
    top = data.draw(st.sampled_from([1, None, 2, 3]))
    decoder = None
    scaling = data.draw(factors(len(query.slots)), label="factors")
    same = expected(how, scaling)
    for table, alive in states(docids, data):
        decoder = decoder or decoder_for(table, query, scaling)
        every = document_rows(best_documents(alive, query, EVERY, top=top, **same))
        for engine in ENGINES:
            for way in ways(how):
                found = decoder.documents(sparse(query), how.k, aggregate=AGGREGATES[top], engine=engine, **way)
                assert_best(document_rows(found.hits), every, how.k, exactly=top == 1)
                assert_exact(found)


def without_floors(query: SlowQuery) -> SlowQuery:
    """The same query where what it does not name, and the end, score nothing."""
    return SlowQuery(query.slots, [0.0] * len(query.ends), [0.0] * VOCAB_SIZE)


@settings(max_examples=400)
@given(st.data())
def test_adding_up_equals_the_reference(data: st.DataObject) -> None:
    """The engine for documents by several docids, in any order, where unnamed tokens and ends score 0."""
    docids, how = data.draw(st.one_of(tables(), large_tables())), data.draw(settings_of_decoding("any"))
    query = without_floors(data.draw(queries(wild=False)))
    top = data.draw(st.sampled_from([None, None, 2, 3]))
    decoder = None
    scaling = data.draw(factors(len(query.slots)), label="factors")
    same = expected(how, scaling)
    for table, alive in states(docids, data):
        decoder = decoder or decoder_for(table, query, scaling)
        every = document_rows(best_documents(alive, query, EVERY, top=top, **same))
        for way in ways(how):
            found = decoder.documents(sparse(query), how.k, aggregate=AGGREGATES[top], engine="accumulate", **way)
            assert found.engine == "accumulate"
            assert found.exact
            assert_best(document_rows(found.hits), every, how.k, exactly=False)
            other = decoder.documents(sparse(query), how.k, aggregate=AGGREGATES[top], engine="brute", **way)
            assert found.hits == other.hits  # to the bit, ties included


def test_adding_up_where_scores_are_far_apart() -> None:
    """What is allowed weighs nothing in short floats beside the best docid, which is not."""
    table = DocidTable.in_memory({(1,): ["far"], (2,): ["a"], (3,): ["b"], (4,): ["c"]}, VOCAB_SIZE)
    decoder = Decoder(table, slots=1, floor=np.zeros(VOCAB_SIZE, np.float32))
    for most in (50.0, 200.0, 2000.0):
        scores = SlotScores.sparse([([1, 2, 3, 4], [most, 1.0, 3.0, 2.0])], ends=[0.0])
        for k in (1, 2, 3):
            how: dict[str, Any] = {"order": "any", "aggregate": "logsumexp", "allow": ["a", "b", "c"]}
            added = decoder.documents(scores, k, engine="accumulate", **how)
            assert added.hits == decoder.documents(scores, k, engine="brute", **how).hits
            assert added.doc_ids == ["b", "c", "a"][:k]


def test_adding_up_is_not_for_everything() -> None:
    table = DocidTable.in_memory({(1, 2): ["d1"], (3,): ["d2"]}, VOCAB_SIZE)
    scores = SlotScores.sparse([([1], [2.0]), ([], [])], ends=[0.0, 0.0])
    decoder = Decoder(table, slots=2, floor=np.zeros(VOCAB_SIZE, np.float32))
    assert decoder.documents(scores, 2, order="any", aggregate="logsumexp").engine == "accumulate"
    assert decoder.documents(scores, 2, order="any", aggregate="max").engine != "accumulate"
    assert decoder.documents(scores, 2, order="any", aggregate="logsumexp", work_limit=5).engine != "accumulate"
    wrong: list[tuple[Decoder, dict[str, Any]]] = [
        (decoder, {"order": "slots", "aggregate": "logsumexp"}),
        (decoder, {"order": "any", "aggregate": "max"}),
        (decoder, {"order": "any", "aggregate": "logsumexp", "work_limit": 5}),
        (Decoder(table, slots=2, floor=np.full(VOCAB_SIZE, -1, np.float32)), {"order": "any", "aggregate": 2}),
        (Decoder(table, slots=2), {"order": "any", "aggregate": 2}),
    ]
    for other, how in wrong:
        with pytest.raises(ValueError, match="accumulate is for documents"):
            other.documents(scores, 2, engine="accumulate", **how)
    ending = SlotScores.sparse([([1], [2.0]), ([], [])], ends=[0.0, -1.0])
    with pytest.raises(ValueError, match="accumulate is for documents"):
        decoder.documents(ending, 2, order="any", aggregate=2, engine="accumulate")
    with pytest.raises(ValueError, match="accumulate is for documents"):
        decoder.docids(scores, 2, order="any", engine="accumulate")


@some
@given(tables(), queries(), settings_of_decoding("slots", "any"), st.integers(1, 12), st.data())
def test_beam_equals_the_reference(
    docids: Names, query: SlowQuery, how: Settings, width: int, data: st.DataObject
) -> None:
    decoder = None
    scaling = data.draw(factors(len(query.slots)), label="factors")
    same = expected(how, scaling)
    for table, alive in states(docids, data):
        decoder = decoder or decoder_for(table, query, scaling)
        rows = docid_rows(beam(alive, query, how.k, width, **same))
        for way in ways(how):
            assert docid_rows(decoder.beam(sparse(query), how.k, width=width, **way).hits) == rows


def check_within_limit(found: Any, rows: list[Row], every: list[Row], k: int, *, exactly: bool) -> None:
    """What decoding says of itself when it may have stopped early is true."""
    if found.exact:
        assert_best(rows, every, k, exactly=exactly)
        assert found.gap == 0
        return
    assert_true_scores(rows, every, exactly=exactly)
    assert len(rows) <= k
    assert found.gap >= 0
    names = [name for name, _, _ in rows]
    if exactly:
        assert names == [name for name, _, _ in every if name in names]  # in the true order
    missing = [score for name, score, _ in every if name not in names]
    if missing:
        assert missing[0] <= found.bound or (not exactly and close(missing[0], found.bound))
    if missing and rows:
        worst = rows[-1][1]
        assert missing[0] <= worst + found.gap + 1e-9 * max(1.0, abs(worst), abs(missing[0]))
    elif missing:  # nothing was found: no finite gap can be promised
        assert found.gap == math.inf


@some
@given(tables(), queries(wild=False), settings_of_decoding(), st.integers(1, 60), st.data())
def test_a_work_limit_is_honest_about_docids(
    docids: Names, query: SlowQuery, how: Settings, limit: int, data: st.DataObject
) -> None:
    query = lifted(query, data)
    scaling = data.draw(factors(len(query.slots)), label="factors")
    decoder = decoder_for(DocidTable.in_memory(docids, VOCAB_SIZE), query, scaling)
    every = docid_rows(best_docids(docids, query, EVERY, **expected(how, scaling)))
    for engine in ENGINES:
        for way in ways(how):
            found = decoder.docids(sparse(query), how.k, engine=engine, work_limit=limit, **way)
            check_within_limit(found, docid_rows(found.hits), every, how.k, exactly=True)


@some
@given(tables(), queries(), settings_of_decoding("slots", "any"), st.integers(1, 60), st.data())
def test_a_work_limit_is_honest_whatever_the_scores(
    docids: Names, query: SlowQuery, how: Settings, limit: int, data: st.DataObject
) -> None:
    scaling = data.draw(factors(len(query.slots)), label="factors")
    decoder = decoder_for(DocidTable.in_memory(docids, VOCAB_SIZE), query, scaling)
    every = docid_rows(best_docids(docids, query, EVERY, **expected(how, scaling)))
    for engine in ENGINES:
        found = decoder.docids(sparse(query), how.k, engine=engine, work_limit=limit, **ways(how)[0])
        check_within_limit(found, docid_rows(found.hits), every, how.k, exactly=True)


@pytest.mark.parametrize("lift", [0.0, 4.0])
@pytest.mark.parametrize("order", ORDERS)
def test_factors_of_thousands_of_docids(order: Order, lift: float) -> None:
    """A table of the size for which every way to leave docids out is in use."""
    rng = random.Random(7)
    docids: Names = {}
    while len(docids) < 2500:
        docids.setdefault(tuple(rng.choices(range(VOCAB_SIZE), k=rng.randint(1, 7))), set()).add(rng.choice(DOCUMENTS))
    grid = [lift - quarters / 4 for quarters in range(16)]
    slots = [{v: rng.choice(grid) for v in rng.sample(range(VOCAB_SIZE), 9)} for _ in range(4)]
    query = SlowQuery(slots, [rng.choice(grid) for _ in range(4)], [lift - 5.0] * VOCAB_SIZE)
    for seed, wide in enumerate((0.5, 8.0)):
        scaling = some_factors(seed, wide, 4)
        decoder = decoder_for(DocidTable.in_memory(docids, VOCAB_SIZE), query, scaling)
        every = docid_rows(best_docids(docids, query, EVERY, order=order, factor=factor_of(scaling)))
        for engine in ENGINES:
            for k in (1, 20):
                found = decoder.docids(sparse(query), k, order=order, engine=engine)
                assert_best(docid_rows(found.hits), every, k, exactly=True)
                for limit in (1, 100, 2000):
                    found = decoder.docids(sparse(query), k, order=order, engine=engine, work_limit=limit)
                    check_within_limit(found, docid_rows(found.hits), every, k, exactly=True)


def test_bounds_hold_where_base_and_gain_cancel() -> None:
    docids: Names = {(0,): {"a"}, (1, 2): {"b"}, (1, 3): {"c"}, (1, 4): {"d"}}
    query = SlowQuery([{0: -1.0, 1: 1.0}, {2: 1.0, 3: 2.0, 4: 3.0}], [0.0, 0.0], [-1e30] * VOCAB_SIZE)
    decoder = decoder_for(DocidTable.in_memory(docids, VOCAB_SIZE), query)
    for engine in ENGINES:
        for limit in (1, 2, 3):
            found = decoder.docids(sparse(query), 1, engine=engine, work_limit=limit)
            assert found.hits[0].score == 4.0 or found.bound >= 4.0


@pytest.mark.parametrize("engine", ENGINES)
def test_scores_of_very_different_sizes(engine: Engine) -> None:
    rng = random.Random(1)
    lowest = float(np.finfo(np.float32).min)
    docids: Names = {tuple(rng.choices(range(VOCAB_SIZE), k=rng.randint(1, 40))): {f"d{i}"} for i in range(500)}
    floor = [lowest if v % 3 == 0 else -2.0 for v in range(VOCAB_SIZE)]
    slots = [{v: 2.0**20 if t == 0 else 2.0**-4 * v for v in range(0, VOCAB_SIZE, 2)} for t in range(32)]
    query = SlowQuery(slots, [0.0] * 32, floor)
    found = decoder_for(DocidTable.in_memory(docids, VOCAB_SIZE), query).docids(sparse(query), 3, engine=engine)
    assert docid_rows(found.hits) == docid_rows(best_docids(docids, query, 3, order="slots", length_norm=0.0))


@some
@given(tables(), queries(wild=False), settings_of_decoding(), st.sampled_from([1, None, 2, 3]), st.data())
def test_a_work_limit_is_honest_about_documents(
    docids: Names, query: SlowQuery, how: Settings, top: int | None, data: st.DataObject
) -> None:
    limit = data.draw(st.integers(1, 60), label="limit")
    query = lifted(query, data)
    scaling = data.draw(factors(len(query.slots)), label="factors")
    decoder = decoder_for(DocidTable.in_memory(docids, VOCAB_SIZE), query, scaling)
    every = document_rows(best_documents(docids, query, EVERY, top=top, **expected(how, scaling)))
    for engine in ENGINES:
        for way in ways(how):
            found = decoder.documents(
                sparse(query), how.k, aggregate=AGGREGATES[top], engine=engine, work_limit=limit, **way
            )
            check_within_limit(found, document_rows(found.hits), every, how.k, exactly=top == 1)


@some
@given(tables(), queries(), settings_of_decoding("slots", "any"), st.integers(1, 12))
def test_dense_scores_equal_sparse_scores(docids: Names, query: SlowQuery, how: Settings, width: int) -> None:
    decoder = decoder_for(DocidTable.in_memory(docids, VOCAB_SIZE), query)
    way = ways(how)[0]
    for engine in ENGINES:
        one, other = (decoder.docids(scores, how.k, engine=engine, **way) for scores in (sparse(query), dense(query)))
        assert docid_rows(one.hits) == docid_rows(other.hits)
        this, that = (
            decoder.documents(scores, how.k, aggregate="max", engine=engine, **way)
            for scores in (sparse(query), dense(query))
        )
        assert document_rows(this.hits) == document_rows(that.hits)
    one, other = (decoder.beam(scores, how.k, width=width, **way) for scores in (sparse(query), dense(query)))
    assert docid_rows(one.hits) == docid_rows(other.hits)


@some
@given(tables(), queries(wild=False), settings_of_decoding(), st.randoms(use_true_random=False))
def test_the_largest_of_repeated_scores_counts(
    docids: Names, query: SlowQuery, how: Settings, rng: random.Random
) -> None:
    slots = []
    for slot in query.slots:
        pairs = [(v, score - less) for v, score in slot.items() for less in (0.0, *rng.choices([0.0, 0.25, 7.0], k=2))]
        rng.shuffle(pairs)
        slots.append((np.array([v for v, _ in pairs], np.int64), np.array([x for _, x in pairs], np.float32)))
    scores = SlotScores.sparse(slots, np.array(query.ends, np.float32))
    decoder = decoder_for(DocidTable.in_memory(docids, VOCAB_SIZE), query)
    rows = docid_rows(best_docids(docids, query, how.k, **expected(how)))
    for engine in ENGINES:
        assert docid_rows(decoder.docids(scores, how.k, engine=engine, **ways(how)[0]).hits) == rows


@settings(max_examples=5)
@given(large_tables(), st.data())
def test_many_threads_decode_at_once(docids: Names, data: st.DataObject) -> None:
    scaling = data.draw(factors(4), label="factors")
    decoder = Decoder(DocidTable.in_memory(docids, VOCAB_SIZE), slots=4, factors=scaling)
    jobs: list[Callable[[], Any]] = []
    rows: list[list[Row]] = []
    for _ in range(6):
        query = data.draw(queries(slots=4))._replace(floor=[-math.inf] * VOCAB_SIZE)
        how = data.draw(settings_of_decoding("slots", "any"))
        scores, way, same = sparse(query), ways(how)[-1], expected(how, scaling)
        for engine in ENGINES:
            jobs.append(partial(decoder.docids, scores, how.k, engine=engine, **way))
            rows.append(docid_rows(best_docids(docids, query, how.k, **same)))
            jobs.append(partial(decoder.documents, scores, how.k, aggregate="max", engine=engine, **way))
            rows.append(document_rows(best_documents(docids, query, how.k, **same)))
        jobs.append(partial(decoder.beam, scores, how.k, width=5, **way))
        rows.append(docid_rows(beam(docids, query, how.k, 5, **same)))
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(job) for job in jobs * 10]
        for future, expected_rows in zip(found, rows * 10, strict=True):
            hits = future.result().hits
            of_docids = bool(hits) and hasattr(hits[0], "documents")
            assert (docid_rows(hits) if of_docids else document_rows(hits)) == expected_rows


TWO = SlowQuery([{0: -1.0, 1: -2.0}, {1: -0.5, 2: -0.25}], [0.0, -1.0], [-math.inf] * VOCAB_SIZE)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ORDERS)
def test_k_may_exceed_the_table(engine: Engine, order: Order) -> None:
    docids: Names = {(0, 1): {"b", "a"}, (1,): {"a"}}
    decoder = Decoder(DocidTable.in_memory(docids, VOCAB_SIZE), slots=2)
    found = decoder.docids(sparse(TWO), 10_000, order=order, engine=engine)
    assert docid_rows(found.hits) == [
        ((0, 1), -1.5, ("a", "b")),
        ((1,), -3.0 if order == "slots" else -1.5, ("a",)),
    ]
    assert_exact(found)
    documents = decoder.documents(sparse(TWO), 10_000, aggregate="max", order=order, engine=engine)
    assert document_rows(documents.hits) == [("a", -1.5, (0, 1)), ("b", -1.5, (0, 1))]
    assert_exact(documents)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_table_without_docids(engine: Engine, order: Order) -> None:
    table = DocidTable.in_memory({}, VOCAB_SIZE)
    decoder = Decoder(table, slots=2)
    tokens: Tokens = (0, 1)

    def hits() -> list[int]:
        found: list[Decoded[Any]] = [
            decoder.docids(sparse(TWO), 5, order=order, engine=engine),
            decoder.documents(sparse(TWO), 5, aggregate="logsumexp", order=order, engine=engine),
        ]
        for each in found:
            assert_exact(each)
        return [len(each.hits) for each in found]

    assert hits() == [0, 0]
    assert len(decoder.beam(sparse(TWO), 5, width=3).hits) == 0
    table.compact()
    assert hits() == [0, 0]
    table.change(add=[("a", tokens), ("b", tokens)])
    assert hits() == [1, 2]
    table.change(remove_documents=["a"])
    assert hits() == [1, 1]
    table.change(remove_docids=[tokens])
    assert hits() == [0, 0]
    table.compact()
    assert hits() == [0, 0]
