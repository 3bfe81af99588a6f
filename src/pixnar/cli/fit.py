"""pixnar fit and pixnar plan: from a corpus to an index, all stages in order; and what that takes, estimated."""

from __future__ import annotations

import json
import math
import os
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from pixnar.research.scale import Counts


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


@app.command("plan")
def plan(
    corpus: Annotated[
        str | None,
        typer.Argument(
            help="Corpus folder, irds:ID, or a .csv, .tsv, .jsonl or .parquet file of documents: counts what the "
            "options do not say.",
            show_default=False,
        ),
    ] = None,
    docids: Annotated[float | None, typer.Option(help="Docids of the corpus, e.g. 170e6.")] = None,
    vocab: Annotated[
        float | None,
        typer.Option(help="Tokens of the vocabulary, e.g. 5e6; of a CORPUS counted for a fit with default settings."),
    ] = None,
    width: Annotated[int, typer.Option(help="Numbers per row: the width of the encoder.", min=1)] = 384,
    documents: Annotated[
        float | None, typer.Option(help="Documents; without a CORPUS a fifth of the docids.", min=0, show_default=False)
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(help="Output positions; default as in a fit, 8 without a CORPUS.", min=1, show_default=False),
    ] = None,
    tokens_per_docid: Annotated[
        float | None, typer.Option(help="Tokens of a docid, on average; 4 without a CORPUS.", min=0.1)
    ] = None,
    text_bytes: Annotated[
        float | None, typer.Option(help="Bytes of a docid's text, on average; 35 without a CORPUS.", min=1)
    ] = None,
    document_bytes: Annotated[
        float | None,
        typer.Option(
            help="Bytes of a document's own text, which the lexical index counts too; 0 without a CORPUS.", min=0
        ),
    ] = None,
    id_column: IdColumn = None,
    title_column: TitleColumn = None,
    text_column: TextColumn = None,
    name_columns: NameColumns = None,
    skip_bad_rows: SkipBadRows = False,
    threads: Threads = 0,
    batch: Annotated[int, typer.Option(help="Pairs of a step, those of all processes together.", min=1)] = 1024,
    steps: Annotated[float, typer.Option(help="Steps of training; 0: by --epochs.", min=0)] = 0,
    epochs: Annotated[float, typer.Option(help="Times through all pairs.", min=0)] = 1.0,
    softmax: Annotated[str, typer.Option(help="full or sampled.")] = "full",
    sample: Annotated[int, typer.Option(help="Tokens of the sampled softmax.", min=1)] = 65_536,
    optimizer: Annotated[str, typer.Option(help="Of the rows: rows or adam.")] = "rows",
    ranking: Annotated[bool, typer.Option(help="With the ranking loss on documents (train.ranking).")] = True,
    fine_tune: Annotated[float, typer.Option(help="Share of the run that trains the encoder.", min=0, max=1)] = 0.0,
    gpus: Annotated[int, typer.Option(help="GPUs, a process each; 0: none.", min=0)] = 0,
    processes: Annotated[int, typer.Option(help="Processes, where there are no GPUs.", min=1)] = 1,
    cores: Annotated[int, typer.Option(help="Cores of the machine; 0: those of this one.", min=0)] = 0,
    memory: Annotated[float, typer.Option(help="Gigabytes of memory of the machine; 0: not compared.", min=0)] = 0,
    gpu_memory: Annotated[float, typer.Option(help="Gigabytes of a GPU (assumed).", min=1)] = 80,
    gpu_tflops: Annotated[float, typer.Option(help="Nominal speed of a GPU in bf16 (assumed).", min=0.1)] = 300,
    json_file: JsonFile = None,
) -> None:
    """Estimate memory, GPU memory, disk and hours of every stage of a fit, without running anything.

    Of a CORPUS it counts documents, docids and their bytes, and learns a vocabulary from up to 500,000 docids to count
    tokens. Options override what is counted.

    Batch, sample and softmax default to what runs of millions of docids want, not to a recipe's own values; the
    command that fits so is printed below the table. Making docids of text (pixnar docids) is not part of it.

    [bold]pixnar plan CORPUS --memory 16[/bold]

    [bold]pixnar plan --docids 170e6 --vocab 5e6 --width 768 --gpus 8[/bold]
    """
    from pixnar.research.plan import plan as reckon
    from pixnar.research.plan import show
    from pixnar.research.scale import Scale

    numbers = {
        "--docids": docids, "--vocab": vocab, "--documents": documents, "--steps": steps, "--epochs": epochs,
        "--tokens-per-docid": tokens_per_docid, "--text-bytes": text_bytes, "--document-bytes": document_bytes,
        "--memory": memory, "--gpu-memory": gpu_memory, "--gpu-tflops": gpu_tflops, "--fine-tune": fine_tune,
    }  # fmt: skip
    for option, value in numbers.items():
        if value is not None and not math.isfinite(value):
            raise typer.BadParameter(f"{option} {value} is no number of things: write e.g. 170e6")
    sizes = {
        "docids": docids, "vocab": vocab, "documents": documents, "slots": slots, "tokens_per_docid": tokens_per_docid,
        "text_bytes": text_bytes, "document_bytes": document_bytes,
    }  # fmt: skip
    known: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    if corpus is not None:
        columns = {"id": id_column, "title": title_column, "text": text_column, "names": name_columns}
        counts = asdict(_count(corpus, columns, vocab, skip_bad_rows, threads))
        known = {name: counts[name] for name in sizes if counts[name]} | known
    for name in ("docids", "vocab"):
        if name not in known:
            lacks = "give a CORPUS that has docids, or" if corpus is None else f"{corpus} has no docids: give"
            raise typer.BadParameter(f"{lacks} --docids and --vocab, e.g. --docids 170e6 --vocab 5e6")
    known |= {name: int(known[name]) for name in ("docids", "vocab", "documents") if name in known}
    made = reckon(
        Scale(
            **known,
            width=width,
            batch=batch,
            steps=int(steps),
            epochs=epochs,
            softmax=softmax,
            sample=sample,
            optimizer=optimizer,
            ranking=ranking,
            fine_tune=fine_tune,
            gpus=gpus,
            processes=processes,
            cores=cores or os.cpu_count() or 1,
            gpu_memory=gpu_memory * 1e9,
            gpu_flops=gpu_tflops * 1e12,
            memory=memory * 1e9,
        )
    )
    show(made, "CORPUS" if corpus is None else corpus)
    write_json(json_file, made.to_dict())


def _count(corpus: str, columns: dict[str, Any], vocab: float | None, skip_bad_rows: bool, threads: int) -> Counts:
    """The counts of a corpus or a table, which are also printed."""
    from pixnar.corpus import open_corpus
    from pixnar.corpus.tabular import convert_table, is_table
    from pixnar.recipe import Recipe
    from pixnar.research.scale import count

    size = Recipe().vocab.size if vocab is None else int(vocab)
    with tempfile.TemporaryDirectory() as folder, show_progress() as progress:
        if is_table(corpus):
            source, found = convert_table(corpus, Path(folder) / "corpus", **columns)
            print(f"{corpus}: {found}")
        else:
            source = open_corpus(corpus, skip_bad_rows=skip_bad_rows)
        counts = count(source, size, threads=threads, progress=progress)
    tell_skipped(source.skipped)
    print(f"{corpus}: {counts}")
    return counts
