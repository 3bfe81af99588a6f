"""A table beside plain dictionaries: changes in any order give the same content."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pixnar.corpus import Document
from pixnar.documents import parse
from pixnar.table import DocidTable
from tests.helpers.tables import (
    DOCUMENTS,
    TEXTS,
    Model,
    content,
    passing,
    small_table,
    tokens_of,
    vocabulary,
)

IDS = ("d1", "d2", "d3", "é4", "d", "new", "～", "😀", "a b")
KNOWN = [document.doc_id for document in DOCUMENTS]


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(TEXTS)


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    ids = st.sampled_from(IDS)
    pairs = st.lists(st.tuples(ids, texts()), max_size=4)
    add = draw(pairs)
    metadata = st.dictionaries(
        st.sampled_from(["country", "price", "only new"]),
        st.sampled_from(["it", "fr", 1, 2.5, True, None, ["it", 7]]),
        max_size=2,
    )
    described = st.builds(Document, ids, st.sampled_from(["", "Title"]), st.just(""), metadata)
    # Half of the time every addition is spelled, in a way of its own.
    spelled = [text.upper() if draw(st.booleans()) else text for _, text in add] if draw(st.booleans()) else []
    return {
        "add": [(doc_id, tokens_of(text)) for doc_id, text in add],
        "spellings": spelled,
        "remove_documents": draw(st.lists(ids, max_size=2)),
        "remove_docids": list(map(tokens_of, draw(st.lists(texts(), max_size=2)))),
        "remove_pairs": [(doc_id, tokens_of(text)) for doc_id, text in draw(pairs)],
        "documents": draw(st.lists(described, max_size=2)),
    }


FILTERS = [
    'country = "it"',
    "price < 50",
    'country = "fr" or missing price',
    'not `only new` = "it"',
    "price >= 1 and has country",
    "open = true",
]


class Changed(RuleBasedStateMachine):
    """Changes in any order, on a table and on dictionaries."""

    table: DocidTable
    model: Model

    @rule(change=changes())
    def change(self, change: dict[str, Any]) -> None:
        self.model.change(**change)
        self.table.change(**change)

    @rule(doc_id=st.sampled_from(IDS), text=texts())
    def remove_and_add_again(self, doc_id: str, text: str) -> None:
        self.change({"remove_docids": [tokens_of(text)]})
        self.change({"add": [(doc_id, tokens_of(text))], "spellings": [text.swapcase()]})

    @rule()
    def compact(self) -> None:
        self.table.compact(threads=1)
        assert self.table.changes == (0, 0)

    @rule(text=st.sampled_from(FILTERS))
    def filters_see_old_and_new(self, text: str) -> None:
        where = parse(text)
        if not all(any(key in metadata for _, metadata in self.model.documents.values()) for key in where.keys):
            return  # whether a removed document's key is known depends on when it was removed
        if "open" in text and isinstance(self, InMemory):
            return
        assert passing(self.table, where, IDS) == self.model.passing(where)

    @invariant()
    def the_same(self) -> None:
        assert content(self.table, IDS) == self.model.content

    @invariant()
    def the_difference_leads_from_what_was_built_to_what_there_is(self) -> None:
        """Whatever was compacted in between."""
        difference = self.table.snapshot().difference
        built = {(doc_id, tokens) for tokens, named in Model().docids.items() for doc_id in named}
        kept = {pair for pair in built if pair[0] not in difference.removed_documents}
        added, removed = (
            {(doc_id, tokens) for doc_id, docids in kind.items() for tokens in docids}
            for kind in (difference.added, difference.removed)
        )
        assert removed <= kept
        assert not added & kept
        assert kept - removed | added == {
            (doc_id, tokens) for tokens, named in self.model.docids.items() for doc_id in named
        }

    @rule()
    def compacting_keeps_the_difference(self) -> None:
        before = self.table.snapshot().difference
        self.table.compact(threads=1)
        assert self.table.snapshot().difference == before


class InMemory(Changed):
    @initialize()
    def begin(self) -> None:
        docids = {tokens: sorted(named) for tokens, named in Model().docids.items()}
        self.table = DocidTable.in_memory(docids, len(vocabulary()))
        self.model = Model(documents=(), spelled=False)


class OnDisk(Changed):
    folder: str | None = None

    @initialize(index=st.just(True), spellings=st.booleans())
    def begin(self, index: bool, spellings: bool) -> None:
        self.folder = tempfile.mkdtemp()
        self.table = small_table(Path(self.folder), index=index, spellings=spellings)
        self.model = Model(spelled=spellings)
        self.other = DocidTable.open(Path(self.folder, "table"))
        self.seen = self.model.copy()

    @precondition(lambda self: self.folder)
    @rule()
    def open_again(self) -> None:
        self.table = DocidTable.open(Path(str(self.folder), "table"))

    @precondition(lambda self: self.folder)
    @rule()
    def check(self) -> None:
        assert content(DocidTable.check(Path(str(self.folder), "table")), IDS) == self.model.content

    @precondition(lambda self: self.folder)
    @rule()
    def other_keeps_what_it_saw(self) -> None:
        assert content(self.other, IDS) == self.seen.content

    @precondition(lambda self: self.folder)
    @rule()
    def other_refreshes(self) -> None:
        same = self.seen.content == self.model.content
        assert self.other.refresh() or same
        assert not self.other.refresh()
        self.seen = self.model.copy()
        assert content(self.other, IDS) == self.seen.content

    @precondition(lambda self: self.folder)
    @rule(change=changes())
    def other_changes(self, change: dict[str, Any]) -> None:
        """Whoever changes a table has first taken in what others did."""
        self.model.change(**change)
        self.other.change(**change)
        self.seen = self.model.copy()
        self.table.refresh()
        assert content(self.other, IDS) == self.seen.content

    def teardown(self) -> None:
        if self.folder:
            shutil.rmtree(self.folder)


def few(examples: int) -> settings:
    return settings(max_examples=examples, stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow])


TestInMemory = InMemory.TestCase
TestInMemory.settings = few(40)
TestOnDisk = OnDisk.TestCase
TestOnDisk.settings = few(30)
