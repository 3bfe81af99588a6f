"""All tables by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

from pixnar.base.errors import MissingExtraError, PixnarError
from pixnar.base.progress import Progress
from pixnar.research.reproduce.report import StudyReport
from pixnar.research.reproduce.study import Study, StudyPlan
from pixnar.research.reproduce.systems import sponsored, table1
from pixnar.research.reproduce.tokens import examples, table4
from pixnar.research.reproduce.vocabularies import phrases, table2, table3, table6

_NEEDED = {
    "torch": "train",
    "matplotlib": "train",
    "ir_measures": "evaluate",
    "bm25s": "baselines",
    "faiss": "baselines",
}

TABLES: dict[str, Callable[[Study], StudyReport]] = {
    "table1": table1,
    "table2": table2,
    "table3": table3,
    "table4": table4,
    "table6": table6,
    "phrases": phrases,
    "examples": examples,
    "sponsored": sponsored,
}


def reproduce(
    tables: Sequence[str],
    plan: StudyPlan,
    *,
    progress: Progress | None = None,
    say: Callable[[str], None] = print,
) -> list[StudyReport]:
    """Make tables one after the other; each is written as soon as it is done, and what is there is not made again."""
    if not tables:
        raise PixnarError(f"no table is named: choose from {', '.join(TABLES)}, all")
    for library, extra in _NEEDED.items():
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError("reproducing the paper's tables", extra)
    unknown = [name for name in tables if name not in TABLES]
    if unknown:
        raise PixnarError(f"{unknown[0]!r} is no table: choose from {', '.join(TABLES)}, all")
    study = Study(plan, progress, say)
    made = []
    for name in tables:
        report = TABLES[name](study)
        report.write(study)
        say(f"{study.name}: {plan.out / name}.md is done")
        made.append(report)
    if study.corpus.skipped.total():
        say(study.corpus.skipped.summary())
    return made
