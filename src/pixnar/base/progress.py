"""Progress for people: bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)`` now and then; a total of 0 means unknown.

A stage may carry what changes behind a colon or comma: "selecting: 5,000 left".
"""

_PLAIN_SECONDS = 10.0
_PATIENCE = 2.0  # what is done sooner needs no words


@contextlib.contextmanager
def show_progress(*, transient: bool = False) -> Iterator[Progress]:
    """Give a function that long work can report to; it writes to standard error only.

    With `transient` a terminal shows the bar of what is going on and no others, and none when all is over.

    >>> with show_progress() as progress:
    ...     progress("reading", 50, 100)
    """
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with _bars(console, transient) as progress:
            yield progress
    else:
        yield _plain_lines()


def stage_name(stage: str) -> str:
    """The part of a stage that does not change while it goes on."""
    return stage.split(":")[0].split(",")[0]


@contextlib.contextmanager
def _bars(console: Console, transient: bool) -> Iterator[Progress]:
    from rich import progress as rich

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    tasks: dict[str, rich.TaskID] = {}
    with rich.Progress(*columns, console=console, transient=transient) as bars:

        def progress(stage: str, done: int, total: int) -> None:
            key = stage_name(stage)
            if key not in tasks:
                for other in tasks.values():
                    bars.stop_task(other)
                    bars.update(other, visible=not transient)
                tasks[key] = bars.add_task(stage, total=total or None)
            bars.update(tasks[key], description=stage, completed=done, total=total or None)

        yield progress


def _plain_lines() -> Progress:
    started = time.monotonic()
    last_time, last_name = started + _PATIENCE - _PLAIN_SECONDS, ""

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal last_time, last_name
        now = time.monotonic()
        new_stage = last_name not in ("", stage_name(stage))
        if now - last_time < _PLAIN_SECONDS * (0.1 if new_stage else 1.0):
            return
        last_time, last_name = now, stage_name(stage)
        amount = f"{done / total:.0%}" if total else f"{done:,}"
        print(f"[{now - started:6.1f} s] {stage} {amount}", file=sys.stderr, flush=True)

    return progress


def quiet_loading() -> None:
    """Keep what loads Hugging Face models from writing over our progress, and from telling of every failed attempt."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
