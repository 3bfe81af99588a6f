"""pixnar plan: resources that a fit needs, estimated before it runs."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixnar.base.progress import show_progress
from pixnar.cli.common import (
    IdColumn,
    JsonFile,
    NameColumns,
    SkipBadRows,
    TextColumn,
    Threads,
    TitleColumn,
    app,
    tell_skipped,
    write_json,
)

if TYPE_CHECKING:
    from pixnar.research.plan import Counts


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
    from pixnar.research.plan import Scale
    from pixnar.research.plan import plan as reckon
    from pixnar.research.plan.show import show

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
    from pixnar.research.plan import count

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
