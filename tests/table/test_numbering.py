"""Units stay what they are while documents come and go, and the table is compacted: beside a plain dict."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pixnar.corpus.records import Document
from pixnar.documents.documents import Documents, Origin, pack_documents
from pixnar.table import DocidTable
from pixnar.table.snapshot import Numbering

NAMES = [f"d{number}" for number in range(6)]
LATER = ["new", "a new one", "zz"]


@pytest.mark.parametrize("seed", range(30))
def test_units_beside_a_dict(seed: int) -> None:
    rng = random.Random(seed)
    table = DocidTable.in_memory({(number, 1): [name] for number, name in enumerate(NAMES)}, vocab_size=10)
    units = {name: unit for unit, name in enumerate(NAMES)}  # of documents that were there from the beginning
    later: set[str] = set()
    for _ in range(12):
        name = rng.choice([*NAMES, *LATER])
        step = rng.randrange(3)
        if step == 0:
            table.remove(name)
            units.pop(name, None)
            later.discard(name)
        elif step == 1:
            table.change(add=[(name, (rng.randrange(10), 2))])
            later |= {name} - units.keys()
        else:
            table.compact()
        expected = units | {name: len(NAMES) + i for i, name in enumerate(sorted(later))}
        snapshot = table.snapshot()
        numbering = snapshot.numbering
        listed = sorted(expected)
        numbers = snapshot.numbers_of(listed)
        assert snapshot.doc_ids(numbers.tolist()) == listed
        assert numbering.units(numbers).tolist() == [expected[name] for name in listed]
        assert numbering.numbers(numbering.units(numbers)).tolist() == numbers.tolist()
        assert numbering.gone.tolist() == sorted(set(range(len(NAMES))) - set(units.values()))
        assert (numbering.built, len(numbering.later)) == (len(NAMES), len(later))
        assert np.argsort(snapshot.id_keys(numbers)).tolist() == list(range(len(listed)))
        owners, known = table.owners(2), sorted(units.values())
        assert sorted([*table.places(owners == 0).tolist(), *table.places(owners == 1).tolist()]) == known


def test_a_part_of_documents_that_all_came_later() -> None:
    documents = Documents(
        pack_documents([Document("new", "", "", {})], origin=Origin("", 0, np.array([-1])), threads=1), "a test"
    )
    numbering = Numbering(documents, later=np.array([0]), gone=[])
    assert (numbering.units(np.array([0])).tolist(), numbering.numbers(np.array([0])).tolist()) == ([0], [0])


def test_a_document_without_docids_has_no_unit() -> None:
    table = DocidTable.in_memory({(1,): ["d"]}, vocab_size=3)
    table.change(add=[("e", (2,))])
    table.change(remove_pairs=[("e", (2,))])
    numbering = table.snapshot().numbering
    assert numbering.units(np.array([0, 1])).tolist() == [0, -1]
