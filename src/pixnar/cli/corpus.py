"""pixnar corpus: check and convert corpora, and write the demo corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pixnar.base.progress import show_progress
from pixnar.cli.common import JsonFile, Overwrite, SkipBadRows, group, tell_skipped, write_json

commands = group("corpus", "Check and convert corpora, and write the demo corpus.")


@commands.command("demo")
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")],
    seed: Annotated[int, typer.Option(help="Chooses which terms are held out as queries.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Write the demo corpus: ICD-10-CM codes and the terms that name them. Not for clinical use.

    [bold]pixnar corpus demo -o icd10[/bold]
    """
    from pixnar.corpus import write_demo

    stats = write_demo(output, seed=seed, overwrite=overwrite)
    print(
        f"{output}: {stats.documents:,} documents, {stats.docids:,} docids, "
        f"{stats.dev_queries:,} dev and {stats.test_queries:,} test queries"
    )
    print(stats.notice)


@commands.command("check")
def check(
    source: Annotated[str, typer.Argument(help="Corpus folder, or irds:ID.")],
    skip_bad_rows: SkipBadRows = False,
    json_file: JsonFile = None,
) -> None:
    """Check every row of a corpus and count documents, docids and queries.

    [bold]pixnar corpus check CORPUS[/bold]
    """
    from pixnar.corpus import check_corpus, open_corpus

    with show_progress() as progress:
        counts, skipped = check_corpus(open_corpus(source, skip_bad_rows=skip_bad_rows), progress)
    for name, count in counts.items():
        print(f"{name:>16} {count:>12,}")
    tell_skipped(skipped)
    write_json(json_file, {"source": source, "counts": counts, "skipped": skipped.total()})


@commands.command("convert")
def convert(
    source: Annotated[str, typer.Argument(help="MS MARCO or Parquet folder, corpus folder, or irds:ID.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write in the corpus layout.")],
    docids: Annotated[Path | None, typer.Option(help="Docids from this file or folder.")] = None,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
) -> None:
    """Convert a corpus to a corpus folder (docs/corpus.md describes the layout).

    [bold]pixnar corpus convert irds:beir/scifact -o scifact[/bold]
    """
    from pixnar.corpus import copy_corpus, open_corpus

    corpus = open_corpus(source, skip_bad_rows=skip_bad_rows, docids=docids)
    with show_progress() as progress:
        copy_corpus(corpus, output, gzip=gzip, overwrite=overwrite, progress=progress)
    print(f"{output} written")
    tell_skipped(corpus.skipped)
