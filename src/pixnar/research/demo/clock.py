"""How far the demo has come: stages by number, and how long the rest of them will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pixnar.base.progress import Progress, stage_name

_MEASURED = 20.0  # seconds of finished work from which on the machine's pace is known


class Stage(NamedTuple):
    """A part of the demo: the seconds it takes on two cores, and those that no machine changes, since a clock ends it.

    `opens` are names of progress that only this stage reports: where one is met, the stage has begun.
    """

    name: str
    work: float
    fixed: float = 0.0
    opens: tuple[str, ...] = ()


class Clock:
    """Counts stages; `left` seconds follow from what each is expected to take and how fast this machine has been.

    >>> clock = Clock([Stage("corpus", 1), Stage("training", 20, 60, opens=("training",)), Stage("examples", 1)])
    >>> clock.begin("corpus"), clock.words()
    ('1 of 3  corpus', 'about a minute')
    >>> clock.met("training: loss 2.5"), clock.begin("examples"), clock.words()
    ('2 of 3  training', '3 of 3  examples', 'a few seconds')
    """

    def __init__(
        self, stages: Iterable[Stage], *, there: Iterable[str] = (), now: Callable[[], float] = time.monotonic
    ) -> None:
        """`there` names the stages whose work an earlier run did."""
        done = set(there)
        self.stages = [stage._replace(work=0.0, fixed=0.0) if stage.name in done else stage for stage in stages]
        self._now, self._current, self._began = now, -1, now()
        self._spent = self._expected = 0.0  # by the stages that are over, without what a clock ends

    def begin(self, name: str) -> str:
        """The stage before is over, this one begins; its heading."""
        number = next(i for i, stage in enumerate(self.stages) if stage.name == name)
        if self._current >= 0:
            over = self.stages[self._current]
            self._expected += over.work
            self._spent += max(0.0, self._now() - self._began - over.fixed) if over.work else 0.0
        self._current, self._began = number, self._now()
        return f"{number + 1} of {len(self.stages)}  {name}"

    def met(self, reported: str) -> str | None:
        """The heading of a later stage, if what is reported opens one."""
        for stage in self.stages[self._current + 1 :]:
            if stage_name(reported) in stage.opens:
                return self.begin(stage.name)
        return None

    @property
    def left(self) -> float:
        """Seconds until the end of the last stage."""
        pace = max(1.0, self._spent / self._expected) if self._expected >= _MEASURED else 1.0  # kept vectors are quick
        later = sum(stage.fixed + stage.work * pace for stage in self.stages[self._current + 1 :])
        if self._current < 0:
            return later
        current = self.stages[self._current]
        return later + max(0.0, current.fixed + current.work * pace - (self._now() - self._began))

    def words(self) -> str:
        """The same for people."""
        minutes = round(self.left / 60)
        return f"about {minutes} minutes" if minutes > 1 else "about a minute" if self.left > 30 else "a few seconds"

    def told(self, progress: Progress | None, heading: Callable[[str], None]) -> Progress:
        """Progress that says where in the demo it is; `heading` is called with those of stages that it opens."""

        def report(stage: str, done: int, total: int) -> None:
            opened = self.met(stage)
            if opened:
                heading(opened)
            if progress:
                place = f"{self._current + 1} of {len(self.stages)}"
                progress(f"{place}  {stage_name(stage)}: {self.words()} to the end", done, total)

        return report
