"""The headings of the demo: the time to the end follows from what is over."""

from __future__ import annotations

import time

import pytest
from rich.console import Console

from pixnar.research import demo


def headings(monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], done: tuple[str, ...] = ()) -> list[str]:
    """The headings when every stage takes so many seconds."""
    now = [0.0]
    monkeypatch.setattr(demo, "STAGES", {"read": 20, "train": 80, "ask": 10})
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    console = Console(width=100, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    stages = demo._headings(console, dict.fromkeys(done, True))
    for name in demo.STAGES:
        next(stages)
        now[0] += seconds[name]
    return [line for line in console.export_text().splitlines() if line]


def test_the_time_to_the_end_shrinks_and_follows_the_pace_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert headings(monkeypatch, {"read": 20, "train": 80, "ask": 10}) == [
        "1 of 3  read  (about 2 minutes to the end)",
        "2 of 3  train  (about 2 minutes to the end)",
        "3 of 3  ask  (a few seconds to the end)",
    ]
    slow = headings(monkeypatch, {"read": 40, "train": 800, "ask": 10})
    assert slow[1:] == ["2 of 3  train  (about 2 minutes to the end)", "3 of 3  ask  (about a minute to the end)"]


def test_a_stage_that_is_done_takes_no_time_and_says_nothing_about_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening what is there may be slow; vectors that were kept are quick."""
    assert headings(monkeypatch, {"read": 900, "train": 900, "ask": 1}, done=("read", "train")) == [
        "1 of 3  read  (a few seconds to the end)",
        "2 of 3  train  (a few seconds to the end)",
        "3 of 3  ask  (a few seconds to the end)",
    ]
    assert (
        headings(monkeypatch, {"read": 1, "train": 900, "ask": 1})[1] == "2 of 3  train  (about 2 minutes to the end)"
    )
