"""pixnar baseline seal-lm, seal-lm-fm, seal, minder, dsi: autoregressive generative retrieval."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from pixnar.base.errors import PixnarError
from pixnar.cli.common import (
    BaselineFields,
    BaselineOutput,
    CorpusName,
    EncoderName,
    JsonFile,
    Overwrite,
    SkipBadRows,
    Threads,
)

Ids = StrEnum("Ids", "naive semantic")  # what DSI generates

Minutes = Annotated[float, typer.Option(help="Train for so long, without the checks on the dev split.", min=0)]
PairCount = Annotated[
    int, typer.Option(help="Or on so many pairs; without minutes, the same seed gives the same ranking.", min=0)
]
ModelFolder = Annotated[
    Path | None,
    typer.Option(help="A baseline seal-lm, seal-lm-fm, seal or minder of the same corpus, whose model is taken."),
]
Over = Annotated[
    BaselineFields,
    typer.Option(help="docids: a document is its docids; text: title and text; both; auto: what the corpus has."),
]
Beam = Annotated[int, typer.Option(help="Hypotheses that go on at each step: more find more and take longer.", min=1)]
Batch = Annotated[int, typer.Option(help="Pairs in a step of training.", min=1)]
LearningRate = Annotated[float, typer.Option(help="Of the decoder; the encoder has a fifth of it.")]
Denoising = Annotated[
    float,
    typer.Option(help="Share of pairs that repair a damaged docid, which teaches copying.", min=0, max=0.9),
]
Checks = Annotated[int, typer.Option(help="How often the dev split is measured; the best weights are kept.", min=1)]
Seed = Annotated[int, typer.Option(help="Of pairs, dropout and naive ids.", min=0)]

_USUAL = (None, 64, 1e-4, 0.2, 4, 0)  # encoder, batch, learning rate, denoising, checks, seed
_TRAINING = """Encoder and decoder are trained on the corpus; there is no generative pre-training. The folder has the
learning curve (curve.json, curve.png). Interrupted, training resumes with the same command."""

_HELP = {
    "seal-lm": "SEAL-LM: a document is as good as the likeliest n-gram of one length that it has.\n\n"
    "The length, 3, 4 or 5, is the one that the dev split selects.",
    "seal-lm-fm": "SEAL-LM+FM: the best n-gram of any length, weighed against its count in the corpus.",
    "seal": "SEAL: all generated n-grams and titles that a document has, and the words of the query.",
    "minder": "MINDER: SEAL and whole docids, whose weight the dev split selects.",
}


def _ngram_row(row: str) -> Callable[..., None]:
    def command(
        corpus: CorpusName,
        output: BaselineOutput,
        minutes: Minutes = 0.0,
        pairs: PairCount = 0,
        model: ModelFolder = None,
        over: Over = BaselineFields.auto,
        beam: Beam = 15,
        encoder: EncoderName = _USUAL[0],
        batch: Batch = _USUAL[1],
        learning_rate: LearningRate = _USUAL[2],
        denoising: Denoising = _USUAL[3],
        checks: Checks = _USUAL[4],
        seed: Seed = _USUAL[5],
        skip_bad_rows: SkipBadRows = False,
        overwrite: Overwrite = False,
        threads: Threads = 0,
        json_file: JsonFile = None,
    ) -> None:
        from pixnar.evaluation.baselines.autoregressive.pairs import Shares

        trained = (encoder, batch, learning_rate, denoising, checks, seed)
        if model is not None and trained != _USUAL:
            raise PixnarError(
                "--model brings its own training: leave out --encoder, --batch, --learning-rate, --denoising, --checks "
                "and --seed"
            )
        learning = _learning(minutes, pairs, batch, learning_rate, checks, seed)
        chosen = {"model": model, "over": over, "shares": Shares.with_denoising(denoising), "encoder": encoder}
        _build_row(row, beam, learning, corpus, output, chosen, skip_bad_rows, overwrite, threads, json_file)

    example = f"[bold]pixnar baseline {row} CORPUS -o {row}.baseline --minutes 60[/bold]"
    other = "minder" if row != "minder" else "seal"
    reuse = f"[bold]pixnar baseline {row} CORPUS -o {row}.baseline --model {other}.baseline[/bold]"
    about = " ".join(_TRAINING.split()) + " One model serves seal-lm, seal-lm-fm, seal and minder."
    command.__doc__ = "\n\n".join([_HELP[row], about, example, reuse])
    return command


def dsi(
    corpus: CorpusName,
    output: BaselineOutput,
    minutes: Minutes = 0.0,
    pairs: PairCount = 0,
    ids: Annotated[
        Ids, typer.Option(help="naive: random numbers; semantic: paths of clusters of the encoder's vectors.")
    ] = Ids.naive,
    over: Over = BaselineFields.auto,
    beam: Beam = 10,
    encoder: EncoderName = None,
    batch: Batch = 64,
    learning_rate: LearningRate = 1e-4,
    checks: Checks = 4,
    seed: Seed = 0,
    skip_bad_rows: SkipBadRows = False,
    overwrite: Overwrite = False,
    threads: Threads = 0,
    json_file: JsonFile = None,
) -> None:
    """DSI: the id of a document, generated digit by digit; ids that do not exist are dropped.

    Pairs are docids, the first 32 word pieces of texts, and train queries, each with the id. Encoder and decoder are
    trained on the corpus; there is no generative pre-training. The folder has the learning curve (curve.json,
    curve.png). Interrupted, training resumes with the same command.

    [bold]pixnar baseline dsi CORPUS -o dsi.baseline --minutes 60 --ids semantic[/bold]
    """
    learning = _learning(minutes, pairs, batch, learning_rate, checks, seed)
    chosen = {"ids": ids, "over": over, "encoder": encoder}
    _build_row("dsi", beam, learning, corpus, output, chosen, skip_bad_rows, overwrite, threads, json_file)


COMMANDS: dict[str, Callable[..., None]] = {**{row: _ngram_row(row) for row in _HELP}, "dsi": dsi}


def _learning(minutes: float, pairs: int, batch: int, rate: float, checks: int, seed: int) -> Any:
    """The settings of training; None if none is wanted, as with another row's model."""
    from pixnar.evaluation.baselines.autoregressive.training import Learning

    if not minutes and not pairs:
        return None
    return Learning(
        minutes=minutes,
        pairs=pairs,
        batch=batch,
        learning_rate=rate,
        encoder_learning_rate=rate / 5,
        checks=checks,
        seed=seed,
    )


def _build_row(
    row: str,
    beam: int,
    learning: Any,
    corpus: str,
    output: Path,
    chosen: dict[str, Any],
    skip_bad_rows: bool,
    overwrite: bool,
    threads: int,
    json_file: Path | None,
) -> None:
    import torch

    from pixnar.cli.baseline import build_with_progress
    from pixnar.evaluation.baselines.autoregressive.build import build_autoregressive
    from pixnar.evaluation.baselines.autoregressive.retriever import RowSettings

    if threads:
        torch.set_num_threads(threads)
    build = partial(
        build_autoregressive,
        settings=RowSettings(row=row, beam=beam),
        learning=learning,
        overwrite=overwrite,
        threads=threads or torch.get_num_threads(),
        say=print,
        **chosen,
    )
    build_with_progress(corpus, output, build, skip_bad_rows, json_file)
