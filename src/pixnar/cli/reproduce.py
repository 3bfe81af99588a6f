"""pixnar reproduce: the paper's tables on any corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pixnar.base.progress import show_progress
from pixnar.cli.common import Cache, SearchThreads, Settings, SkipBadRows, app


@app.command("reproduce")
def reproduce(
    tables: Annotated[
        str,
        typer.Argument(
            help="table1, table2, table3, table4, table6, phrases, examples, sponsored, several with commas, or all."
        ),
    ],
    corpus: Annotated[str, typer.Argument(help="Corpus folder, or irds:ID, with docids and a dev split.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the tables and what they are made of.")],
    budget: Annotated[
        float,
        typer.Option(
            help="Minutes of training a model; a table trains two to nine, and each is trained once for all.", min=0.01
        ),
    ] = 2.0,
    steps: Annotated[
        int,
        typer.Option(
            help="Steps a model instead of minutes: the same figures again (but for the shortlist, learned for two "
            "minutes).",
            min=0,
        ),
    ] = 0,
    split: Annotated[str, typer.Option(help="The split that is reported; choices are made on dev.")] = "dev",
    queries: Annotated[int, typer.Option(help="A sample of so many queries; 0 = all.", min=0)] = 2000,
    size: Annotated[int, typer.Option(help="Tokens of the largest phrase vocabulary.", min=514)] = 131072,
    timed: Annotated[int, typer.Option(help="Queries that are timed, one by one.", min=1)] = 200,
    tuned: Annotated[
        bool, typer.Option(help="Fine-tune dense retrieval for table1, too: encodes all docids once more.")
    ] = True,
    own_ngrams: Annotated[
        bool,
        typer.Option(
            help="Give every method of table4 the query's own n-grams, exactly scored and copied, as an index does."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of training, and of docids and examples that are drawn.", min=0)] = 0,
    encoder: Annotated[str | None, typer.Option(help="Hugging Face encoder by name or folder.")] = None,
    settings: Settings = None,
    cache: Cache = None,
    skip_bad_rows: SkipBadRows = False,
    threads: SearchThreads = 2,
) -> None:
    """Make the paper's tables on your corpus: Markdown, JSON and pictures.

    Every model takes as many steps as the slowest, CLOVERv2, takes in the budget. Models and figures are kept in
    OUTPUT/work: what is there is not made again, and an interrupted run resumes.

    [bold]pixnar reproduce table2,table3 CORPUS -o tables --budget 2[/bold]   in a quarter of an hour

    [bold]pixnar reproduce all CORPUS -o tables --budget 60 --split test[/bold]   overnight
    """
    from pixnar.research.reproduce import TABLES, Plan
    from pixnar.research.reproduce import reproduce as run

    names = [name.strip() for name in tables.split(",") if name.strip()]
    names = list(TABLES) if "all" in names else names
    plan = Plan(
        corpus=corpus,
        out=output,
        minutes=budget,
        steps=steps,
        split=split,
        queries=queries,
        size=size,
        timed=timed,
        tuned=tuned,
        own_ngrams=own_ngrams,
        seed=seed,
        cache=cache,
        threads=threads,
        skip_bad_rows=skip_bad_rows,
        settings=tuple(settings or ()),
        **({"encoder": encoder} if encoder else {}),
    )
    with show_progress() as progress:
        made = run(names, plan, progress=progress, say=lambda line: print(line, flush=True))
    for report in made:
        print(f"\n# {report.title}\n")
        for grid in report.grids[:1]:
            print(grid.markdown())
        for note in report.notes:
            print(f"- {note}")
