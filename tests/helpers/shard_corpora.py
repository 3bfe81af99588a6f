"""Small corpora in shards, and what a table looks like on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


def write_sharded(folder: Path, rows: Sequence[tuple[str, str]], documents: int, files: int) -> Path:
    """A corpus folder with `files` files of docids."""
    (folder / "docids").mkdir(parents=True)
    with open(folder / "corpus.jsonl", "w") as file:
        for number in range(documents):
            row = {"_id": f"d{number}", "title": f"Title {number}", "text": "", "group": number % 3}
            file.write(json.dumps(row) + "\n")
    for part in range(files):
        own = rows[len(rows) * part // files : len(rows) * (part + 1) // files]
        lines = [json.dumps({"_id": doc_id, "docid": docid}) + "\n" for doc_id, docid in own]
        (folder / "docids" / f"part-{part:02}.jsonl").write_text("".join(lines))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every byte of every file."""
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
