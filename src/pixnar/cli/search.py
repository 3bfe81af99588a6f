"""pixnar search and pixnar verify: ask an index, and check that it is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pixnar.cli.common import app

IndexPath = Annotated[Path, typer.Argument(help="Index: the folder that pixnar fit wrote.")]
FullVocabulary = Annotated[
    bool, typer.Option("--full", help="Score every token of the vocabulary, not only the shortlist.")
]


@app.command("search")
def search(
    index: IndexPath,
    query: Annotated[str, typer.Argument(help="What to look for.")],
    k: Annotated[int, typer.Option("-k", help="Documents wanted.", min=1, max=10_000)] = 10,
    where: Annotated[
        str | None, typer.Option(help="Only documents with this metadata, e.g. 'level = \"code\"'.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Leave out documents that score less.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how the answer comes about: clusters, tokens, docids, time.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    full: FullVocabulary = False,
    device: Annotated[
        str | None,
        typer.Option(help="Encode and score through torch on this device, e.g. cuda."),
    ] = None,
) -> None:
    """Find documents.

    [bold]pixnar search INDEX "sugar disease with kidney trouble" -k 5[/bold]
    """
    from pixnar.cli.explained import show
    from pixnar.index import Index

    opened = Index.load(index, shortlist=not full, device=device)
    if explain:
        opened.search(query, k, where=where)  # so that the times told are not those of opening files
        found = opened.explain(query, k, threshold=threshold, where=where)
        if as_json:
            print(json.dumps(found, ensure_ascii=False))
        else:
            show(found)
        return
    hits = opened.search(query, k, where=where, threshold=threshold)
    if as_json:
        print(json.dumps({"query": query, "hits": [hit._asdict() for hit in hits]}, ensure_ascii=False))
        return
    for place, hit in enumerate(hits, 1):
        print(f"{place:>3}  {hit.score:8.3f}  {hit.doc_id:<20} {hit.docid}")
    if not hits:
        print("nothing found")


@app.command("verify")
def verify(index: IndexPath) -> None:
    """Read a whole index and compare every byte with its checksum.

    [bold]pixnar verify INDEX[/bold]
    """
    from pixnar.index import Index

    files = Index.load(index).verify()
    print(f"{index} is sound: {files} files and the docid table match their checksums")
