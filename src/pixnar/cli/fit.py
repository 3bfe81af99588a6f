"""pixnar fit: from a corpus to an index, all stages in order."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from pixnar.base.progress import show_progress
from pixnar.cli.common import (
    Cache,
    IdColumn,
    JsonFile,
    NameColumns,
    Overwrite,
    Settings,
    SkipBadRows,
    TextColumn,
    Threads,
    TitleColumn,
    app,
    tell_skipped,
    write_json,
)


@app.command("fit")
def fit(
    corpus: Annotated[
        str,
        typer.Argument(help="Corpus folder, irds:ID, or a .csv, .tsv, .jsonl or .parquet file of documents."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the index to write.")],
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe", help="Recipe by name (default, quick, paper, msmarco, nq, clover), or a TOML file of settings."
        ),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="The same as --recipe paper (docs/model.md lists where it differs from the paper)."
        ),
    ] = False,
    id_column: IdColumn = None,
    title_column: TitleColumn = None,
    text_column: TextColumn = None,
    name_columns: NameColumns = None,
    settings: Settings = None,
    minutes: Annotated[float | None, typer.Option(help="Time for training; the same as --set train.minutes=…")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Hugging Face encoder by name or folder; the same as --set model.encoder=…")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="With train.steps and without minutes, the same seed gives the same index.", min=0),
    ] = None,
    cache: Cache = None,
    keep_work: Annotated[bool, typer.Option("--keep-work", help="Keep checkpoints after the index is done.")] = False,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
    threads: Threads = 0,
    json_file: JsonFile = None,
) -> None:
    """Build an index: vocabulary, docid table, phrase rows, training, shortlist; the dev split selects settings.

    It first prints how long it will take. Interrupted, it resumes when started again with the same arguments. Without
    a limit (--minutes, or train.steps or train.epochs) the size of the corpus sets the training time.

    [bold]pixnar fit CORPUS -o INDEX --minutes 10[/bold]

    [bold]pixnar fit products.csv -o INDEX --id sku --title name --names "name,also called"[/bold]

    [bold]torchrun --nproc-per-node 4 -m pixnar fit CORPUS -o INDEX[/bold]   train in four processes
    """
    from pixnar.base.errors import PixnarError
    from pixnar.model.process_group import ProcessGroup, Silent
    from pixnar.pipeline import fit as run
    from pixnar.pipeline.api import corpus_of
    from pixnar.recipe import PAPER, Recipe, find, override

    if paper and recipe:
        raise PixnarError("--paper is a recipe itself: give it, or --recipe, not both")
    chosen = PAPER if paper else find(recipe) if recipe else Recipe()
    short = {"train.minutes": minutes, "train.seed": seed, "model.encoder": encoder}
    from_options = [f"{name}={json.dumps(value)}" for name, value in short.items() if value is not None]
    chosen = override(chosen, [*(settings or []), *from_options])
    group = ProcessGroup.join(chosen.train.device)
    try:
        with group.together(), show_progress() if group.first else nullcontext() as progress:
            columns = {"id": id_column, "title": title_column, "text": text_column, "names": name_columns}
            say = print if group.first else lambda _: None
            source = group.in_turn(
                lambda: corpus_of(corpus, output, **columns, say=say, skip_bad_rows=skip_bad_rows, overwrite=overwrite)
            )
            report = run(
                source,
                output,
                chosen,
                cache=cache,
                overwrite=overwrite,
                keep_work=keep_work,
                threads=threads,
                progress=progress,
                say=print,
                world=group,
            )
    except Silent as silent:
        raise typer.Exit(2) from silent
    if not group.first:
        return
    tell_skipped(source.skipped)
    print(f'{output}: done; try: pixnar search {output} "your query"')
    write_json(json_file, {"index": str(output), "facts": report.facts, "dev": report.dev})
