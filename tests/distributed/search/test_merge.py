"""Parts answer as the whole does, bit by bit: random tables with ties, filters and live changes, random cuts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.corpus.records import Document
from pixnar.distributed.sharded import ShardRequest, ShardServer, merged
from pixnar.distributed.shards import change
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL, TEXT, Fusion
from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.terms import Ngrams
from pixnar.fusion.vectors import DocidVectors, name_of
from pixnar.scoring import Priors, ScoreRule
from pixnar.search import DocumentHit, SlotScores
from pixnar.search.decoder import Decoder
from pixnar.search.query import ArrayHead, QueryScorer
from pixnar.search.ranker import PreparedQuery, Ranker
from pixnar.search.reference import SlowQuery as Slots
from pixnar.search.types import SearchOptions
from pixnar.table import DocidTable
from pixnar.table.table import part_of
from pixnar.vocab import Vocabulary, normalize
from tests.helpers.search_strategies import DOCUMENTS, VOCAB_SIZE, Change, Names, changes, queries, tables

COUNTRIES = ("de", "fr", "it")
FILTERS = (None, 'country = "de"', 'not (country in ("de", "fr"))', "missing country", 'shelf = "high" or price < 3')
VOCABULARY = Vocabulary.build([f"{a} {b}" for a in "abcd" for b in ("mole", "vole", "hare")] * 3, 600, min_count=2)


def described(doc_ids: Sequence[str]) -> list[Document]:
    """Documents with metadata: one of them has a key that no other has."""
    made = []
    for i, doc_id in enumerate(sorted(doc_ids)):
        metadata: dict[str, Any] = {"country": COUNTRIES[i % 3], "price": i} if i % 4 else {}
        made.append(Document(doc_id, f"Title {i}", "", metadata | ({"shelf": "high"} if i == 1 else {})))
    return made


def table_of(names: Names, vocab_size: int) -> DocidTable:
    table = DocidTable.in_memory(names, vocab_size)
    table.change(documents=described(sorted({doc_id for named in names.values() for doc_id in named})))
    return table


def cut_table(names: Names, vocab_size: int, parts: int) -> list[DocidTable]:
    made = []
    documents = described(sorted({doc_id for named in names.values() for doc_id in named}))
    for number in range(parts):
        mine = {
            tokens: [doc_id for doc_id in named if part_of(doc_id, parts) == number] for tokens, named in names.items()
        }
        made.append(DocidTable.in_memory({tokens: named for tokens, named in mine.items() if named}, vocab_size))
        made[-1].change(documents=[one for one in documents if part_of(one.doc_id, parts) == number])
    return made


def asked(
    scores: SlotScores,
    depth: int,
    wanted: SearchOptions,
    part: int,
    parts: int,
    query: PreparedQuery | None = None,
    **more: Any,
) -> ShardRequest:
    """What one part is asked: of ids only its own."""
    ids = [
        None if given is None else [doc_id for doc_id in given if part_of(doc_id, parts) == part]
        for given in (wanted.allow, wanted.forbid)
    ]
    text, pooled = (query.text, query.pooled) if query else ("", np.zeros(0, np.float32))
    where = wanted.where if isinstance(wanted.where, str) else None
    return ShardRequest(text, (), pooled, scores, more.get("expanded"), depth, ids[0], ids[1], where)


@st.composite
def changed_tables(draw: st.DrawFn) -> tuple[Names, list[Change]]:
    names = draw(tables())
    made, now = [], names
    for _ in range(draw(st.integers(0, 2))):
        made.append(draw(changes(now)))
        now = made[-1].applied_to(now)
    return names, made


def ids() -> st.SearchStrategy[list[str] | None]:
    return st.none() | st.lists(st.sampled_from(DOCUMENTS), max_size=8)


def wishes() -> st.SearchStrategy[SearchOptions]:
    return st.builds(SearchOptions, allow=ids(), forbid=ids(), where=st.sampled_from(FILTERS))


@settings(max_examples=100)
@given(
    changed_tables(),
    queries(),
    st.integers(1, 5),
    st.sampled_from([1, 2, 5, 1000, 0]),
    st.sampled_from(["max", "logsumexp", 2, 3]),
    st.sampled_from(["slots", "any"]),
    st.sampled_from([0.0, 0.3, 1.0]),
    wishes(),
)
def test_docids_alone(
    content: tuple[Names, list[Change]],
    query: Slots,
    parts: int,
    k: int,
    aggregate: Any,
    order: Any,
    length_norm: float,
    wanted: SearchOptions,
) -> None:
    """Documents, their order among equals, their scores and the docids shown."""
    names, made = content
    whole, cut = table_of(names, VOCAB_SIZE), cut_table(names, VOCAB_SIZE, parts)
    for one in made:
        wish: dict[str, Any] = one._asdict()
        whole.change(**wish)
        change(cut, **wish)
    slots = len(query.slots)
    scores = SlotScores.sparse([(list(slot), list(slot.values())) for slot in query.slots], query.ends)
    rule = ScoreRule(aggregate=aggregate, order=order, length_norm=length_norm)
    scorer = QueryScorer(
        ArrayHead(np.zeros((VOCAB_SIZE + 1, 1), np.float32), None),
        np.zeros(slots + 1, np.float32),
        Priors(np.zeros(VOCAB_SIZE, np.float32), np.zeros(slots, np.float32)),
        rule,
    )

    def ranker(table: DocidTable) -> Ranker:
        decoder = Decoder(table, slots=slots, floor=query.floor, warm_up=False)
        return Ranker(table, scorer, Ngrams(VOCABULARY), made=decoder)

    snapshot = whole.snapshot()
    if wanted.where is not None and not {"country", "price", "shelf"} <= {*snapshot.new_keys}:
        wanted = replace(wanted, where=None)  # the whole would refuse a key that nobody has
    expected = ranker(whole).decode(scores, k, wanted)
    places = np.zeros(0, np.int64)
    answers = [
        ShardServer(ranker(table), places).answer(asked(scores, k, wanted, number, parts))
        for number, table in enumerate(cut)
    ]
    found = merged([answer.candidates for answer in answers], k, None, k)
    assert found == expected


def text_of(rng: random.Random) -> str:
    """Few words, so that documents often say the same."""
    return " ".join(rng.choices(["a", "b", "c", "mole", "vole", "hare", "newt"], k=rng.randint(1, 4)))


def encoded(text: str, width: int) -> NDArray[np.int64]:
    """A vector of a text; small whole numbers, so that documents are often equally near."""
    return np.random.default_rng(len(text)).integers(-3, 4, width) * 2 + 1


class World:
    """An ranker with every source over random documents, and the same cut into parts."""

    def __init__(self, seed: int, parts: int, fusion: Fusion, depth: int) -> None:
        rng = random.Random(seed)
        numbers = np.random.default_rng(seed)
        self.doc_ids = sorted(rng.sample(DOCUMENTS, rng.randint(2, 30)), key=str.encode)
        texts = [(unit, text_of(rng)) for unit in range(len(self.doc_ids)) for _ in range(rng.randint(1, 3))]
        names: Names = {}
        for unit, text in texts:
            tokens = tuple(VOCABULARY.encode(text).tolist())
            names.setdefault(tokens, set()).add(self.doc_ids[unit])
        self.slots, self.width, size = 3, rng.choice([16, 32]), len(VOCABULARY)
        rows = numbers.integers(-2, 3, (size + 1, self.width)).astype(np.float32)
        priors = Priors.count(numbers.integers(0, 5, size), [len(tokens) for tokens in names], self.slots)
        rule = ScoreRule(aggregate=rng.choice(["max", "logsumexp", 2]), order=rng.choice(["bag", "any", "slots"]))
        rule = rule.with_(score=("composed", "probability")[seed % 2])
        scorer = QueryScorer(ArrayHead(rows, None), np.zeros(self.slots + 1, np.float32), priors, rule)
        lexical = LexicalIndex.build(VOCABULARY, texts, len(self.doc_ids))
        owners = [unit for unit, _ in texts]
        lines = [text for _, text in texts]
        vectors = DocidVectors.build(
            [encoded(text, self.width) for text in lines],
            np.arange(len(texts)),
            owners,
            len(self.doc_ids),
            [name_of(VOCABULARY.encode(text)) for text in lines],
        )
        said = [unit for unit in range(len(self.doc_ids)) for _ in range(rng.randint(0, 2))]
        text_vectors = DocidVectors.build(
            numbers.integers(-3, 4, (len(said), self.width)) * 2 + 1, range(len(said)), said, len(self.doc_ids)
        )
        how: dict[str, Any] = {"fusion": fusion, "depth": depth, "expansion": 7, "threads": 1}
        how["nearest"] = rng.random() < 0.7
        how["encode"] = lambda given: np.array([encoded(text, self.width) for text in given], np.float32)
        ngrams = Ngrams(VOCABULARY)
        self.table, self.tables = table_of(names, size), cut_table(names, size, parts)
        self.whole = Ranker(self.table, scorer, ngrams, None, lexical, vectors, text_vectors, **how)
        self.parts = []
        cut = self.table.owners(parts)
        for number, table in enumerate(self.tables):
            places = self.table.places(cut == number)
            sources = (lexical.part(places), vectors.part(places), text_vectors.part(places))
            made = Ranker(table, scorer, ngrams, None, *sources, **how, factors=self.whole.factors)
            self.parts.append(ShardServer(made, places))

    def change(self, wish: dict[str, Any]) -> None:
        self.table.change(**wish)
        change(self.tables, **wish)

    def query(self, seed: int) -> PreparedQuery:
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        x = numbers.integers(-2, 3, (1, self.slots + 1, self.width)).astype(np.float32)
        return self.whole.queries([normalize(text_of(rng))], x, x[:, 0])[0]

    def merged(self, query: PreparedQuery, k: int, wanted: SearchOptions) -> list[DocumentHit]:
        scores, expanded = self.whole.scored(query), self.whole.expanded(query)
        assert self.whole.fusion is not None
        depth = max(self.whole.depth, k)
        answers = [
            part.answer(asked(scores, depth, wanted, number, len(self.parts), query, expanded=expanded))
            for number, part in enumerate(self.parts)
        ]
        return merged([answer.candidates for answer in answers], k, self.whole.fusion, depth)


@settings(max_examples=100)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.dictionaries(
        st.sampled_from([DOCIDS, LEXICAL, EXPANSION, DENSE, TEXT]), st.sampled_from([0.5, 1.0, 3.0]), min_size=1
    ),
    st.sampled_from([1, 2, 3, 200]),
    st.sampled_from([1, 3, 1000]),
    wishes(),
    st.booleans(),
)
@example(0, 3, {DOCIDS: 1.0, LEXICAL: 1.0, DENSE: 1.0}, 1, 3, SearchOptions(), True)
@example(4, 3, {LEXICAL: 1.0}, 1, 3, SearchOptions(), False)  # equals of several parts at the last place of a source
@example(7, 3, {EXPANSION: 1.0}, 2, 3, SearchOptions(), False)
def test_fused(
    seed: int, parts: int, weights: dict[str, float], depth: int, k: int, wanted: SearchOptions, live: bool
) -> None:
    """What is fused depends on all candidates of the whole: the lowest score of a source, documents added late."""
    world = World(seed, parts, Fusion(weights, dict.fromkeys(weights, 1.5)), depth)
    world.whole.drop_unweighted()
    for part in world.parts:
        part.ranker.drop_unweighted()
    if live:
        rng = random.Random(seed + 1)
        tokens = [tuple(VOCABULARY.encode(text_of(rng)).tolist()) for _ in range(6)]
        new = [f"new{i}" for i in range(3)]
        wish: dict[str, Any] = {
            "add": [(rng.choice([*new, *world.doc_ids]), one) for one in tokens],
            "remove_documents": rng.sample(world.doc_ids, 1),
            "remove_docids": [rng.choice(tokens)],
        }
        world.change(wish)
        back = wish["remove_documents"] if rng.random() < 0.5 else new
        more = [(rng.choice([*back, *world.doc_ids]), tuple(VOCABULARY.encode(f"okapi {text_of(rng)}"))) for _ in "ab"]
        pairs = rng.sample([(doc_id, one) for one, named in world.table for doc_id in named], 2)
        world.change({"add": more, "remove_pairs": pairs})
    if wanted.where is not None and not {"country", "price", "shelf"} <= {*world.table.snapshot().new_keys}:
        wanted = replace(wanted, where=None)
    for number in range(3):
        query = world.query(seed + number)
        expected = world.whole.ranked(query, world.whole.scored(query), replace(wanted, k=k))
        assert world.merged(query, k, wanted) == expected
        if live and number == 1:  # the same answers from then on, bit by bit
            for table in (world.table, *world.tables):
                table.compact()
            assert world.whole.ranked(query, world.whole.scored(query), replace(wanted, k=k)) == expected


def test_part_of_is_the_same_everywhere() -> None:
    """Folders of parts are copied between machines: a document must be looked for where it was put."""
    assert [part_of(doc_id, 7) for doc_id in ("d1", "é", "😀", "a b")] == [0, 6, 2, 6]
