"""Small corpora of text only."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

from pixnar.corpus import Document, Qrel, Query
from tests.helpers.fit_corpora import WORDS


def passages(count: int, seed: int = 0) -> list[Document]:
    """Passages of made-up words, a few sentences each, every one about two words of its own."""
    chance = random.Random(seed)
    made = []
    for i in range(count):
        topic = chance.sample(WORDS, 2)
        rows = [[*chance.sample(topic, chance.randint(1, 2)), *chance.sample(WORDS, 5)] for _ in range(4)]
        text = " ".join(" ".join(row).capitalize() + "." for row in rows)
        made.append(Document(f"d{i:04}", " ".join(topic).title() if i % 2 else "", text, {}))
    return made


def write_text_only(
    folder: Path, documents: Iterable[Document], queries: Iterable[Query] = (), dev: Iterable[Qrel] = ()
) -> Path:
    """A folder of documents, and of dev queries if there are any; nothing else, not even empty files."""
    folder.mkdir(parents=True)
    rows = [{"_id": row.doc_id, "title": row.title, "text": row.text, **row.metadata} for row in documents]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [json.dumps({"_id": query.query_id, "text": query.text}) + "\n" for query in queries]
    if asked:
        (folder / "queries.jsonl").write_text("".join(asked))
        (folder / "qrels").mkdir()
        judged = [f"{row.query_id}\t{row.doc_id}\t{row.score}\n" for row in dev]
        (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    return folder
