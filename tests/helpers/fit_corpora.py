"""A generated corpus: documents of made-up words, each named by a few docids."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from pixnar.corpus import DocidRow, Document, Qrel, Query, write_corpus

WORDS = [
    head + tail
    for head in ("ba", "de", "fi", "go", "ku", "la", "mo", "ni", "pa", "ro")
    for tail in ("lin", "mor", "net", "pol", "rus", "sta", "vek", "zon")
]
COUNTRIES = ("de", "fr", "it")


def write_small(
    folder: Path, documents: int = 50, docids: int = 4, *, splits: Sequence[str] = ("train", "dev"), seed: int = 0
) -> dict[str, set[str]]:
    """Write a corpus in the usual layout; which documents each docid names. The first docid of d00 names d01, too."""
    chance = random.Random(seed)
    names: dict[str, set[str]] = {}
    rows: list[DocidRow] = []
    queries: list[Query] = []
    qrels: dict[str, list[Qrel]] = {split: [] for split in splits}
    for i in range(documents):
        doc_id = f"d{i:02}"
        topic = chance.sample(WORDS, 2)
        while sum(row.doc_id == doc_id for row in rows) < docids:
            words = [*topic, *chance.sample(WORDS, chance.randint(1, 2))]
            chance.shuffle(words)
            if (text := " ".join(words)) not in names:
                names[text] = {doc_id}
                rows.append(DocidRow(doc_id, text.title() if len(rows) % 7 == 3 else text))
        for split in splits:
            query_id = f"{split}{i}"
            queries.append(Query(query_id, " ".join([*topic[::-1], chance.choice(WORDS)])))
            qrels[split].append(Qrel(query_id, doc_id, 1))
    first = rows[0].docid
    names[first].add("d01")
    rows.append(DocidRow("d01", first))
    made = [
        Document(f"d{i:02}", f"Title {i}", "Some text.", {"country": COUNTRIES[i % 3], "price": i})
        for i in range(documents)
    ]
    write_corpus(folder, made, rows, queries, qrels)
    return names


def settings(encoder: Path, **changes: object) -> list[str]:
    """A recipe for the corpus above that takes a second: `train__steps=3` changes train.steps."""
    start: dict[str, object] = {
        "model.encoder": encoder,
        "model.hidden": 32,
        "vocab.size": 600,
        "vocab.min_count": 2,
        "train.minutes": 0,
        "train.steps": 6,
        "train.batch": 32,
        "train.warmup": 2,
        "train.evaluate_every": 3,
        "serve.keep_model": "true",  # searches through torch are tested, too
        "fuse.margin": 0,  # the files of all sources are there, whatever dev says of them
        "shortlist.minutes": 0.01,
        "shortlist.k": 8,  # not as many as dev needs: of so few tokens that may be all
    }
    start |= {name.replace("__", "."): value for name, value in changes.items()}
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in start.items()]
