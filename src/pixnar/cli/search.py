"""pixnar search, search-batch, verify and shard: search for one query or a file of them; verify or split an index."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pixnar.base.errors import PixnarError
from pixnar.cli.common import (
    JsonFile,
    Overwrite,
    Ray,
    RayAddress,
    RayWorkers,
    SkipBadRows,
    Threads,
    app,
    check_ray,
    tell_skipped,
    write_json,
)

if TYPE_CHECKING:
    from pixnar.search import Hit

SearchPath = Annotated[Path, typer.Argument(help="Index or baseline: the folder that pixnar fit or baseline wrote.")]
IndexPath = Annotated[Path, typer.Argument(help="Index: the folder that pixnar fit wrote.")]
FullVocabulary = Annotated[
    bool, typer.Option("--full", help="Score every token of the vocabulary, not only the shortlist.")
]

Sources = Annotated[
    str,
    typer.Option(
        help="What ranks: docids alone; lexical: also the lexical index, by the words of the query and what the model "
        "expects; all: also vectors of docids (dense) and of text."
    ),
]
Beam = Annotated[
    int,
    typer.Option(
        help="Decode by a beam of so many docids, as in the paper: not exact, and docids alone rank. 0 = exact.",
        min=0,
        max=10_000,
    ),
]

Spelling = Annotated[
    bool | None,
    typer.Option(
        "--spelling/--no-spelling",
        help="Correct words that neither the corpus nor the encoder knows; default: as fit decided on dev.",
        show_default=False,
    ),
]


_DOCID_WIDTH = 50  # of the column before the titles; longer docids push theirs aside


@app.command("search")
def search(
    index: SearchPath,
    words: Annotated[list[str], typer.Argument(metavar="query", help="Query; several words need no quotes.")],
    k: Annotated[int, typer.Option("-k", help="Documents wanted.", min=1, max=10_000)] = 10,
    where: Annotated[
        str | None, typer.Option(help="Only documents with this metadata, e.g. 'level = \"category\"'.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Leave out documents that score less.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how the answer comes about: clusters, tokens, docids, time.")
    ] = False,
    json_file: JsonFile = None,
    full: FullVocabulary = False,
    sources: Sources = "all",
    beam: Beam = 0,
    spelling: Spelling = None,
    device: Annotated[
        str | None,
        typer.Option(help="Encode and score through torch on this device, e.g. cuda."),
    ] = None,
) -> None:
    """Search an index or a baseline for one query.

    [bold]pixnar search INDEX sugar disease with kidney trouble -k 5[/bold]
    """
    from pixnar.cli.explained import show
    from pixnar.evaluation.baselines import is_baseline, open_baseline
    from pixnar.index import Index
    from pixnar.vocab import normalize

    query = " ".join(words)
    if is_baseline(index):
        given = {"--where": where, "--threshold": threshold, "--explain": explain, "--full": full, "--device": device}
        given |= {"--sources": None if sources == "all" else sources, "--beam": beam or None, "--spelling": spelling}
        refuse(index, given)
        _show_hits(query, open_baseline(index).search(query, k), json_file)
        return
    opened = Index.load(index, shortlist=not full, sources=ranked_by(sources, beam), device=device)
    if explain:
        # a first search opens files, which the times of the explanation should not include
        opened.search(query, k, where=where, beam=beam, spelling=spelling)
        explanation = opened.explain(query, k, threshold=threshold, where=where, beam=beam, spelling=spelling)
        show(explanation)
        write_json(json_file, explanation)
        return
    asked = opened.asked(query, spelling)
    hits = opened.search(query, k, where=where, threshold=threshold, beam=beam, spelling=spelling)
    _show_hits(query, hits, json_file, None if asked == normalize(query) else asked)


def ranked_by(sources: str, beam: int) -> str:
    """The sources to open: with a beam docids alone rank."""
    if beam and sources not in ("all", "docids"):
        raise PixnarError(f"--beam ranks by docids alone, not by --sources {sources}: leave one of them out")
    return "docids" if beam else sources


def refuse(folder: Path, options: Mapping[str, object]) -> None:
    """A baseline has no metadata, no tokens and no model to show: none of these options may be set."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        raise PixnarError(f"{folder} is a baseline, and {given[0]} is for an index: leave it out, or give an index")


def _show_hits(query: str, hits: list[Hit], json_file: Path | None, corrected: str | None = None) -> None:
    """Print hits as a table, with titles where there are any, and write them as JSON if that is wanted."""
    if corrected is not None:
        print(f"searching for: {corrected} (instead of: {query}; --no-spelling searches as typed)")
    width = min(max((len(hit.docid) for hit in hits), default=0), _DOCID_WIDTH) if any(h.title for h in hits) else 0
    for place, hit in enumerate(hits, 1):
        print(f"{place:>3}  {hit.score:8.3f}  {hit.id:<20} {hit.docid:<{width}}  {hit.title}".rstrip())
    if not hits:
        print("nothing found")
    rows = [{**hit.facts(), "title": hit.title} for hit in hits]
    write_json(json_file, {"query": query, "corrected": corrected, "hits": rows})


@app.command("verify")
def verify(index: SearchPath) -> None:
    """Verify the checksums of an index or a baseline, byte by byte.

    [bold]pixnar verify INDEX[/bold]
    """
    from pixnar.evaluation.baselines import is_baseline
    from pixnar.evaluation.baselines import verify as verify_baseline
    from pixnar.index import Index

    if is_baseline(index):
        print(f"{index} is sound: {verify_baseline(index)} files match their checksums")
        return
    files = Index.load(index).verify()
    print(f"{index} is sound: {files} files and the docid table match their checksums")


@app.command("search-batch")
def search_batch(
    index: IndexPath,
    queries: Annotated[Path, typer.Argument(help='Lines of {"_id": "q1", "text": "…"}, plain or .gz.')],
    out: Annotated[
        Path, typer.Option("-o", "--output", help="Table to write: .parquet, .jsonl, or .trec for a TREC run.")
    ],
    k: Annotated[int, typer.Option("-k", help="Documents wanted for each query.", min=1, max=10_000)] = 10,
    where: Annotated[
        str | None, typer.Option(help="Only documents with this metadata, e.g. 'level = \"category\"'.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Leave out documents that score less.")] = None,
    batch: Annotated[
        int, typer.Option(help="Queries of a batch; an interrupted run loses at most one batch.", min=1)
    ] = 256,
    full: FullVocabulary = False,
    sources: Sources = "all",
    spelling: Spelling = None,
    ray: Ray = False,
    workers: RayWorkers = None,
    ray_address: RayAddress = None,
    threads: Threads = 0,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace what is there, also an unfinished run with other settings."),
    ] = False,
) -> None:
    """Search for every query of a file and write the hits to a file; an interrupted run resumes.

    [bold]pixnar search-batch INDEX queries.jsonl -o run.parquet[/bold]
    [bold]pixnar search-batch INDEX queries.jsonl -o run.parquet --ray --workers 8[/bold]

    Rows of query_id, rank, doc_id, score and docid, in the order of the queries: the same bytes with Ray and without,
    whatever the number of workers, and whichever of them died on the way.
    """
    from pixnar.base.progress import show_progress
    from pixnar.corpus import Skipped
    from pixnar.distributed.batch import BatchOptions, search_file

    check_ray(ray, workers, ray_address)
    made = None
    if ray:
        from pixnar.distributed import batch_ray

        made = batch_ray.RayWorkers(workers, ray_address, threads or 1)
    began, skipped = time.perf_counter(), Skipped()
    with show_progress(transient=True) as progress:
        count = search_file(
            index,
            queries,
            out,
            BatchOptions(k, where, threshold, sources, full, batch, spelling),
            workers=made,
            threads=threads,
            skip_bad_rows=skip_bad_rows,
            skipped=skipped,
            overwrite=overwrite,
            progress=progress,
        )
    tell_skipped(skipped)
    seconds = time.perf_counter() - began
    print(f"{out}: {count:,} queries in {seconds:,.1f} s, {count / seconds:,.0f} a second", file=sys.stderr)


@app.command("shard")
def shard(
    index: IndexPath,
    out: Annotated[Path, typer.Option("-o", "--output", help="Folder to write the parts to.")],
    parts: Annotated[int, typer.Option(help="How many parts.", min=1)] = 2,
    overwrite: Overwrite = False,
    threads: Threads = 0,
) -> None:
    """Split an index by document into parts that together give the same answers.

    [bold]pixnar shard INDEX -o SHARDS --parts 4[/bold]   then pixnar serve SHARDS --ray

    Each part is an index of its own: its documents, all docids that name them, and what else speaks for them. The
    encoder and the phrase rows are shared (hard links) where the disk allows it.
    """
    from pixnar.base.progress import show_progress
    from pixnar.distributed.shards import split

    with show_progress(transient=True) as progress:
        made = split(index, out, parts, overwrite=overwrite, threads=threads, progress=progress)
    counts = ", ".join(f"{count:,}" for count in made.content["documents"])
    print(f"{out}: {parts} parts of {counts} documents")
