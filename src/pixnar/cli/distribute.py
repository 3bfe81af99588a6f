"""pixnar search-batch and pixnar shard: files of queries, and an index split for several processes or machines."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from pixnar.cli.common import (
    Overwrite,
    Ray,
    RayAddress,
    RayWorkers,
    SkipBadRows,
    Threads,
    app,
    check_ray,
    tell_skipped,
)
from pixnar.cli.search import FullVocabulary, IndexPath, Sources, Spelling


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
