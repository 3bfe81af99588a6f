"""pixnar evaluate: measure an index on the queries of a split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pixnar.cli.common import JsonFile, app, write_json
from pixnar.cli.search import FullVocabulary, IndexPath
from pixnar.progress import show_progress


@app.command("evaluate")
def evaluate(
    index: IndexPath,
    corpus: Annotated[str, typer.Argument(help="Corpus folder, or irds:ID, with queries and qrels.")],
    split: Annotated[str, typer.Option(help="dev, test or train.")] = "dev",
    most: Annotated[int, typer.Option("--queries", help="A sample of so many queries; 0 = all.", min=0)] = 2000,
    run_file: Annotated[Path | None, typer.Option("--run", help="Also write the rankings in TREC form.")] = None,
    full: FullVocabulary = False,
    threads: Annotated[int, typer.Option(help="Worker threads.", min=1)] = 2,
    json_file: JsonFile = None,
) -> None:
    """Measure an index on the queries of a split: MRR@10, R@5, R@20, R@100."""
    from pixnar.evaluate.run import evaluate as measure
    from pixnar.evaluate.run import write_trec

    with show_progress() as progress:
        figures, run = measure(index, corpus, split, most=most, shortlist=not full, threads=threads, progress=progress)
    for name, value in figures.items():
        print(f"{name:>8} {value:.4f}")
    if run_file is not None:
        write_trec(run_file, run)
    write_json(json_file, {"index": str(index), "split": split, "queries": len(run), "figures": figures})
