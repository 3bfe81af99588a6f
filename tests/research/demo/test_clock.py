"""The time that is left follows from what is over."""

from __future__ import annotations

import pytest

from pixnar.research.demo import Clock, DemoStage

STAGES = [
    DemoStage("read", 20),
    DemoStage("train", 20, 60, opens=("training",)),
    DemoStage("ask", 10, opens=("asking",)),
]


class Now:
    """A clock that is wound by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_what_is_left_shrinks_and_follows_the_pace_of_the_machine() -> None:
    now = Now()
    clock = Clock(STAGES, now=now)
    assert clock.left == 110
    assert clock.begin("read") == "1 of 3  read"
    now.seconds = 4
    assert clock.left == 106
    now.seconds = 40  # twice as long as expected
    assert clock.left == 90
    clock.begin("train")
    assert clock.left == 60 + 2 * 20 + 2 * 10  # what a clock ends takes no longer here
    now.seconds += 100
    clock.begin("ask")
    assert clock.left == pytest.approx(2 * 10)
    now.seconds += 1000
    assert clock.left == 0


def test_what_is_there_takes_no_time_and_says_nothing_about_the_pace() -> None:
    now = Now()
    clock = Clock(STAGES, there=["train"], now=now)
    assert clock.left == 30
    clock.begin("read")
    now.seconds = 20
    clock.begin("train")
    now.seconds = 90  # opening what is there
    clock.begin("ask")
    assert clock.left == 10
    assert Clock(STAGES, there=["read", "train", "ask"]).words() == "a few seconds"


def test_kept_vectors_make_no_machine_fast() -> None:
    now = Now()
    clock = Clock(STAGES, now=now)
    clock.begin("read")
    now.seconds = 1
    clock.begin("train")
    assert clock.left == 60 + 20 + 10


def test_progress_opens_stages_and_tells_where_it_is() -> None:
    now = Now()
    clock = Clock(STAGES, now=now)
    headings: list[str] = []
    lines: list[tuple[str, int, int]] = []
    report = clock.told(lambda *line: lines.append(line), headings.append)
    clock.begin("read")
    report("docids", 1, 2)
    now.seconds = 10
    report("training: loss 2.5", 3, 4)
    report("training: loss 2.4", 4, 4)
    report("asking, slowly", 0, 0)
    report("docids", 2, 2)  # what many stages report opens none
    assert headings == ["2 of 3  train", "3 of 3  ask"]
    assert lines[0] == ("1 of 3  docids: about 2 minutes to the end", 1, 2)
    assert lines[1][0] == "2 of 3  training: about 2 minutes to the end"
    assert [line[0][:6] for line in lines] == ["1 of 3", "2 of 3", "2 of 3", "3 of 3", "3 of 3"]
    assert lines[-1] == ("3 of 3  docids: a few seconds to the end", 2, 2)
