"""pixnar baseline: what one would use instead, built from the same corpus and searched by the same commands."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pixnar.cli.common import (
    Cache,
    JsonFile,
    Overwrite,
    Settings,
    SkipBadRows,
    Threads,
    group,
    tell_skipped,
    write_json,
)
from pixnar.progress import show_progress

commands = group(
    "baseline",
    "Build what one would use instead: BM25, dense retrieval, or a word-piece model (CLOVERv2).\n\n"
    "Each is a folder that [bold]pixnar search[/bold] and [bold]pixnar verify[/bold] take like an index.",
)

CorpusName = Annotated[str, typer.Argument(help="Corpus folder, or irds:ID.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")]
EncoderName = Annotated[
    str | None,
    typer.Option(help="Hugging Face encoder by name or folder; default: that of pixnar fit."),
]


class Words(StrEnum):
    """What BM25 can be over."""

    docids = "docids"
    joined = "joined"
    text = "text"
    both = "both"


class Vectors(StrEnum):
    """What dense retrieval can be over."""

    docids = "docids"
    text = "text"


class Near(StrEnum):
    """How faiss finds the nearest vectors."""

    flat = "flat"
    hnsw = "hnsw"


class Losses(StrEnum):
    """What a word-piece model is trained on."""

    all = "all"
    l1 = "l1"


@commands.command("bm25")
def bm25(
    corpus: CorpusName,
    output: Output,
    over: Annotated[
        Words,
        typer.Option(
            help="docids: a document is as good as its best docid; joined: all its docids as one text; text: title and "
            "text; both: text and docids together, as docT5query does."
        ),
    ] = Words.docids,
    k1: Annotated[float, typer.Option(help="How soon a word's repeats stop counting.", min=0)] = 1.5,
    b: Annotated[float, typer.Option(help="How much long texts are held back.", min=0, max=1)] = 0.75,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
    json_file: JsonFile = None,
) -> None:
    """BM25 by bm25s, without stop words or stemming.

    [bold]pixnar baseline bm25 CORPUS -o bm25.baseline --over both[/bold]
    """
    from pixnar.baselines import build_bm25
    from pixnar.corpus import open_corpus

    source = open_corpus(corpus, skip_bad_rows=skip_bad_rows)
    with show_progress() as progress:
        facts = build_bm25(source, output, over=over, k1=k1, b=b, overwrite=overwrite, progress=progress)
    tell_skipped(source.skipped)
    _tell(output, facts, json_file)


@commands.command("dense")
def dense(
    corpus: CorpusName,
    output: Output,
    encoder: EncoderName = None,
    over: Annotated[
        Vectors,
        typer.Option(help="docids: one vector each, a document is as good as its best; text: one of title and text."),
    ] = Vectors.docids,
    index: Annotated[Near, typer.Option(help="flat: exact; hnsw: a graph, faster on millions of vectors.")] = Near.flat,
    minutes: Annotated[float, typer.Option(help="Fine-tune the encoder for so long first; 0: as it comes.", min=0)] = 0,
    steps: Annotated[
        int, typer.Option(help="Or for so many steps; without minutes, the same seed gives the same vectors.", min=0)
    ] = 0,
    batch: Annotated[int, typer.Option(help="Pairs in a step of fine-tuning: each is a negative of the others.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Of fine-tuning.")] = 2e-5,
    temperature: Annotated[float, typer.Option(help="Of fine-tuning: similarities are divided by it.")] = 0.05,
    max_pieces: Annotated[
        int, typer.Option(help="Word pieces of a text that the encoder reads; 0: 64 of docids, 256 of text.", min=0)
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of fine-tuning.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="Of fine-tuning: auto, cpu, cuda …")] = "auto",
    cache: Cache = None,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
    threads: Threads = 0,
    json_file: JsonFile = None,
) -> None:
    """Dense retrieval by faiss: an encoder's vectors of docids or text, as it comes or fine-tuned on the corpus.

    Fine-tuning takes the pairs that pixnar fit takes, with in-batch negatives, and keeps what dev says is best.

    [bold]pixnar baseline dense CORPUS -o dense.baseline --minutes 10[/bold]
    """
    import torch

    from pixnar.baselines import build_dense
    from pixnar.baselines.bi_encoder import Tuning
    from pixnar.corpus import open_corpus
    from pixnar.fit.run import default_cache

    if threads:
        torch.set_num_threads(threads)
    tuning = Tuning(
        minutes=minutes,
        steps=steps,
        batch=batch,
        learning_rate=learning_rate,
        temperature=temperature,
        seed=seed,
        device=device,
    )
    source = open_corpus(corpus, skip_bad_rows=skip_bad_rows)
    with show_progress() as progress:
        facts = build_dense(
            source,
            output,
            encoder=encoder,
            over=over,
            index=index,
            max_pieces=max_pieces,
            tuning=tuning if minutes or steps else None,
            cache=cache or default_cache(),
            overwrite=overwrite,
            threads=threads or os.cpu_count() or 1,
            progress=progress,
            say=print,
        )
    tell_skipped(source.skipped)
    _tell(output, facts, json_file)


@commands.command("clover")
def clover(
    corpus: CorpusName,
    output: Output,
    losses: Annotated[
        Losses, typer.Option(help="all: the paper's three; l1: every slot its token, and nothing else.")
    ] = Losses.all,
    encoder: EncoderName = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Time for training; by the size of the corpus if not given, or no limit with --steps.", min=0
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of training at most; 0: no limit.", min=0)] = 0,
    settings: Settings = None,
    seed: Annotated[int, typer.Option(help="With --steps and without --minutes, the same seed, the same index.")] = 0,
    cache: Cache = None,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
    threads: Threads = 0,
    json_file: JsonFile = None,
) -> None:
    """CLOVERv2: our model with the encoder's own word pieces as its vocabulary, and nothing beside the model.

    The result is an index like any other; recipes/clover.toml is its recipe. Interrupted, it goes on where it stopped.

    [bold]pixnar baseline clover CORPUS -o clover.index --minutes 10[/bold]
    """
    from pixnar.corpus import open_corpus
    from pixnar.fit import fit
    from pixnar.recipe import CLOVER, override
    from pixnar.recipe.clover import L1_ONLY

    if minutes is None and steps:
        minutes = 0.0
    short = {"train.minutes": minutes, "train.steps": steps, "train.seed": seed, "model.encoder": encoder}
    dials = [f"{name}={json.dumps(value)}" for name, value in short.items() if value is not None]
    recipe = override(CLOVER, [*(L1_ONLY if losses == Losses.l1 else ()), *dials, *(settings or [])])
    source = open_corpus(corpus, skip_bad_rows=skip_bad_rows)
    with show_progress() as progress:
        report = fit(
            source, output, recipe, cache=cache, overwrite=overwrite, threads=threads, progress=progress, say=print
        )
    tell_skipped(source.skipped)
    print(f'{output}: done; try: pixnar search {output} "your query"')
    write_json(json_file, {"index": str(output), "facts": report.facts, "dev": report.dev})


def _tell(output: Path, facts: dict[str, Any], json_file: Path | None) -> None:
    print(
        f"{output}: {facts['entries']:,} entries about {facts['documents']:,} documents; "
        f'try: pixnar search {output} "your query"'
    )
    write_json(json_file, {"baseline": str(output), "facts": facts})
