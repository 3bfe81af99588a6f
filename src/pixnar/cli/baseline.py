"""pixnar baseline: BM25, dense retrieval, hybrids, CLOVERv2 and autoregressive models, searched as an index is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pixnar.base.errors import PixnarError
from pixnar.base.progress import show_progress
from pixnar.cli import autoregressive
from pixnar.cli.common import (
    BaselineFields,
    BaselineOutput,
    Cache,
    CorpusName,
    EncoderName,
    JsonFile,
    Overwrite,
    Settings,
    SkipBadRows,
    Threads,
    group,
    tell_skipped,
    write_json,
)

commands = group(
    "baseline",
    "Build a baseline: BM25, dense retrieval, a hybrid of both, a word-piece model (CLOVERv2), or an autoregressive "
    "model.\n\n"
    "Each is a folder that [bold]pixnar search[/bold] and [bold]pixnar verify[/bold] take like an index.",
)

Bm25Fields = StrEnum("Bm25Fields", "auto docids joined text both")  # what BM25 is over
Aggregated = StrEnum("Aggregated", "auto max logsumexp mean")  # how entries of a document become its score
Fused = StrEnum("Fused", "weights rrf")  # how a hybrid adds up its sides
Precision = StrEnum("Precision", "fp32 int8")  # weights of an encoder
Near = StrEnum("Near", "flat hnsw")  # how faiss finds the nearest vectors
Losses = StrEnum("Losses", "ranking tokens l1")  # what a word-piece model is trained on
AggregateOption = Annotated[
    Aggregated,
    typer.Option(
        help="A document's score from those of its docids and text; auto: as the dev split selects, else max."
    ),
]
Scale = Annotated[float, typer.Option(help="Of logsumexp; 0: as the dev split selects.", min=0)]
PrecisionOption = Annotated[
    Precision, typer.Option(help="Of the encoder, when docids and texts are encoded: int8 is twice as fast.")
]


@commands.command("bm25")
def bm25(
    corpus: CorpusName,
    output: BaselineOutput,
    over: Annotated[
        Bm25Fields,
        typer.Option(
            help="docids: a document is as good as its best docid; joined: all its docids as one text; text: title and "
            "text; both: text and docids together, as docT5query does; auto: as the dev split selects."
        ),
    ] = Bm25Fields.docids,
    k1: Annotated[
        str, typer.Option(help="How soon a word's repeats stop counting; auto: as the dev split selects, else 1.5.")
    ] = "auto",
    b: Annotated[
        str, typer.Option(help="How much long texts are held back, 0 to 1; auto: as the dev split selects, else 0.75.")
    ] = "auto",
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
    json_file: JsonFile = None,
) -> None:
    """BM25 by bm25s with the words of an index: no stop words, no stemming.

    [bold]pixnar baseline bm25 CORPUS -o bm25.baseline --over both[/bold]
    """
    from pixnar.evaluation.baselines import build_bm25

    build = partial(build_bm25, over=over, k1=_number("k1", k1), b=_number("b", b), overwrite=overwrite)
    build_with_progress(corpus, output, build, skip_bad_rows, json_file)


@commands.command("dense")
def dense(
    corpus: CorpusName,
    output: BaselineOutput,
    encoder: EncoderName = None,
    over: Annotated[
        BaselineFields,
        typer.Option(
            help="docids: one vector each; text: one of title and text; both: all of these; auto: "
            "docids or both, as the dev split selects."
        ),
    ] = BaselineFields.docids,
    aggregate: AggregateOption = Aggregated.auto,
    scale: Scale = 0.0,
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
    precision: PrecisionOption = Precision.fp32,
    seed: Annotated[int, typer.Option(help="Of fine-tuning.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="Of fine-tuning: auto, cpu, cuda …")] = "auto",
    cache: Cache = None,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
    threads: Threads = 0,
    json_file: JsonFile = None,
) -> None:
    """Dense retrieval by faiss: an encoder's vectors of docids or text, as it comes or fine-tuned on the corpus.

    Fine-tuning takes the pairs that pixnar fit takes, with in-batch negatives, and keeps the weights that are best on
    the dev split. Interrupted, it resumes with the same command.

    [bold]pixnar baseline dense CORPUS -o dense.baseline --minutes 10[/bold]
    """
    import torch

    from pixnar.evaluation.baselines import build_dense
    from pixnar.evaluation.baselines.bi_encoder import Tuning
    from pixnar.pipeline.run import default_cache

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
    build = partial(
        build_dense,
        encoder=encoder,
        over=over,
        index=index,
        aggregate=aggregate,
        scale=scale,
        max_pieces=max_pieces,
        precision=precision,
        tuning=tuning if minutes or steps else None,
        cache=cache or default_cache(),
        overwrite=overwrite,
        threads=threads or os.cpu_count() or 1,
        say=print,
    )
    build_with_progress(corpus, output, build, skip_bad_rows, json_file)


@commands.command("hybrid")
def hybrid(
    corpus: CorpusName,
    output: BaselineOutput,
    over: Annotated[
        BaselineFields, typer.Option(help="What both sides read; auto: docids and text where documents have text.")
    ] = BaselineFields.auto,
    fusion: Annotated[
        Fused, typer.Option(help="weights: dense + weight x BM25; rrf: reciprocal rank fusion.")
    ] = Fused.weights,
    weight: Annotated[str, typer.Option(help="Of BM25; auto: as the dev split selects, else 0.04.")] = "auto",
    depth: Annotated[
        int, typer.Option(help="Documents that each side proposes; the other side scores them exactly.", min=1)
    ] = 1000,
    aggregate: AggregateOption = Aggregated.auto,
    scale: Scale = 0.0,
    dense_folder: Annotated[
        Path | None, typer.Option("--dense", help="Take this dense baseline, for example a fine-tuned one.")
    ] = None,
    bm25_folder: Annotated[Path | None, typer.Option("--bm25", help="Take this BM25 baseline.")] = None,
    encoder: EncoderName = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Of the encoder, when docids and texts are encoded; default: fp32.")
    ] = None,
    cache: Cache = None,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
    threads: Threads = 0,
    json_file: JsonFile = None,
) -> None:
    """Dense retrieval and BM25 in one ranking: a weighted sum or reciprocal rank fusion.

    The weight, the aggregate, the form of BM25, its k1 and b are selected on the dev split.

    [bold]pixnar baseline hybrid CORPUS -o hybrid.baseline --fusion rrf[/bold]
    """
    from pixnar.evaluation.baselines import build_hybrid
    from pixnar.pipeline.run import default_cache

    build = partial(
        build_hybrid,
        over=over,
        fusion=fusion,
        weight=_number("weight", weight),
        depth=depth,
        aggregate=aggregate,
        scale=scale,
        dense=dense_folder,
        bm25=bm25_folder,
        encoder=encoder,
        precision=precision,
        cache=cache or default_cache(),
        overwrite=overwrite,
        threads=threads or os.cpu_count() or 1,
    )
    build_with_progress(corpus, output, build, skip_bad_rows, json_file)


@commands.command("clover")
def clover(
    corpus: CorpusName,
    output: BaselineOutput,
    losses: Annotated[
        Losses,
        typer.Option(
            help="ranking: of documents, as pixnar fit trains; tokens: the paper's three losses; l1: every slot its "
            "token, and nothing else."
        ),
    ] = Losses.ranking,
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

    The result is an index like any other; recipes/clover.toml is its recipe. Interrupted, it resumes.

    [bold]pixnar baseline clover CORPUS -o clover.index --minutes 10[/bold]
    """
    from pixnar.corpus import open_corpus
    from pixnar.pipeline import fit
    from pixnar.recipe import CLOVER, override
    from pixnar.recipe.presets import L1_ONLY, TOKEN_LOSSES

    if minutes is None and steps:
        minutes = 0.0
    short = {"train.minutes": minutes, "train.steps": steps, "train.seed": seed, "model.encoder": encoder}
    changes = {Losses.ranking: (), Losses.tokens: TOKEN_LOSSES, Losses.l1: L1_ONLY}[losses]
    own = [f"{name}={json.dumps(value)}" for name, value in short.items() if value is not None]
    recipe = override(CLOVER, [*changes, *own, *(settings or [])])
    source = open_corpus(corpus, skip_bad_rows=skip_bad_rows)
    with show_progress() as progress:
        report = fit(
            source, output, recipe, cache=cache, overwrite=overwrite, threads=threads, progress=progress, say=print
        )
    tell_skipped(source.skipped)
    print(f'{output}: done; try: pixnar search {output} "your query"')
    write_json(json_file, {"index": str(output), "facts": report.facts, "dev": report.dev})


for _row, _command in autoregressive.COMMANDS.items():
    commands.command(_row)(_command)


def _number(name: str, text: str) -> float | None:
    """A setting that may be auto, which is None."""
    if text == "auto":
        return None
    try:
        return float(text)
    except ValueError as error:
        raise PixnarError(f"{name} {text!r} is not possible: give a number or auto") from error


def build_with_progress(
    corpus: str, output: Path, build: Callable[..., dict[str, Any]], skip_bad_rows: bool, json_file: Path | None
) -> None:
    """Build a baseline with progress, and say what it is and what it reaches on dev."""
    from pixnar.corpus import open_corpus
    from pixnar.evaluation.baselines import describe

    source = open_corpus(corpus, skip_bad_rows=skip_bad_rows)
    with show_progress() as progress:
        facts = build(source, output, progress=progress)
    tell_skipped(source.skipped)
    what, dev = describe(output), facts["dev"]
    print(f"{output}: {facts['entries']:,} entries about {facts['documents']:,} documents")
    print(f"{output}: {what}")
    if dev:
        expected = dev.get("MRR@10 cross-validated")  # one query has none
        cross_validated = "" if expected is None else f", cross-validated {expected:.4f}"
        print(f"{output}: dev MRR@10 {dev['MRR@10']:.4f} in sample{cross_validated} ({dev['queries']} queries)")
    print(f'try: pixnar search {output} "your query"')
    write_json(json_file, {"baseline": str(output), "sources": what, "facts": facts})
