"""A plan as a table for people."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table

from pixnar.research.plan.constants import ENCODER_NAMES
from pixnar.research.plan.scale import Scale
from pixnar.research.plan.stages import Plan, Stage, step_seconds


def show(made: Plan, corpus: str = "CORPUS", console: Console | None = None) -> None:
    """Print the stages, what training is made of, the command for a fit of that corpus, and what does not fit."""
    out = console or Console(soft_wrap=True)
    scale = made.scale
    where = f"{scale.gpus} GPUs" if scale.gpus else f"{scale.processes} processes on {scale.cores} cores"
    sizes = f"{scale.docids:,} docids of {scale.n_documents:,} documents"
    out.print(f"{sizes}, {scale.vocab:,} tokens, width {scale.width}, {where}")
    table = Table("stage", *("memory", "per GPU", "disk", "time"), title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for stage in made.stages:
        table.add_row(stage.name, size(stage.memory), size(stage.gpu), size(stage.disk), duration(stage.seconds))
    total = sum(stage.seconds for stage in made.stages)
    table.add_row("all", size(max(stage.memory for stage in made.stages)), "", "", duration(total), style="bold")
    out.print(table)
    training = next(stage for stage in made.stages if stage.name == "training")
    out.print(f"training, each process: {parts(training)}")
    each = step_seconds(scale)
    slowest = ", ".join(f"{name} {value * 1e3:,.1f}" for name, value in each.items() if value)
    out.print(f"training, {scale.n_steps:,} steps of {scale.batch:,} pairs; milliseconds of a step: {slowest}")
    out.print(f"to fit so: {command(scale, corpus)}", highlight=False)
    for warning in made.warnings:
        out.print(f"does not fit: {warning}", style="bold red", highlight=False)


def command(scale: Scale, corpus: str = "CORPUS") -> str:
    """The fit that a plan is about: its settings are not the recipe's own.

    >>> command(Scale(docids=10, vocab=9, gpus=2, steps=5))
    'torchrun --nproc-per-node 2 -m pixnar fit CORPUS -o INDEX --minutes 0 --set vocab.size=9 --set model.slots=8 \
--set scoring.score=probability --set model.head=encoder --set train.batch=128 --set train.softmax=full \
--set train.optimizer=rows --set train.steps=5'
    """
    settings: dict[str, object] = {"vocab.size": scale.vocab, "model.slots": scale.slots}
    settings |= {"scoring.score": "probability", "model.head": "encoder"}  # whose training was measured
    settings |= {"train.batch": scale.batch, "train.softmax": scale.softmax}
    if scale.softmax == "sampled":
        settings["train.sample"] = scale.sample
    settings["train.optimizer"] = scale.optimizer
    settings["train.steps"] = scale.n_steps
    if scale.fine_tune:
        settings["train.fine_tune"] = scale.fine_tune
    if not scale.ranking:
        settings["train.ranking"] = 0
    start = f"torchrun --nproc-per-node {scale.shards} -m pixnar" if scale.shards > 1 else "pixnar"
    told = " ".join(f"--set {name}={value}" for name, value in settings.items())
    encoder = ENCODER_NAMES.get(scale.width, "ENCODER")  # one of that width, if we know none
    return f"{start} fit {shlex.quote(corpus)} -o INDEX{f' --encoder {encoder}' if encoder else ''} --minutes 0 {told}"


def parts(stage: Stage) -> str:
    """What a stage's memory is made of, largest first.

    >>> parts(Stage("x", parts={"rows": 2e9, "nothing": 0.0, "bias": 3e6}))
    'rows 2.0 GB, bias 3.0 MB'
    """
    largest = sorted(stage.parts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {size(value)}" for name, value in largest if value)


def size(count: float) -> str:
    """Bytes for people.

    >>> [size(n) for n in (0, 999, 1.54e7, 2.3e11, 4e12)]
    ['', '1.0 KB', '15 MB', '230 GB', '4.0 TB']
    """
    if not count:
        return ""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= factor or unit == "KB":
            return f"{count / factor:.1f} {unit}" if count < 10 * factor else f"{count / factor:.0f} {unit}"
    raise AssertionError


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> [duration(s) for s in (0, 0.4, 90, 3 * 3600, 5e6)]
    ['', '0.4 s', '1.5 min', '3.0 h', '58 days']
    """
    if not seconds:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"
