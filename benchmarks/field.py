"""The default index beside every baseline, on corpora with a test split: three seeds, intervals, corrected p-values.

    python -m pixnar.benchmarks.field CORPUS … -o FOLDER --seeds 3 --minutes 2 --json field.json

Everything is selected on dev; test is asked once by each system. Indexes and baselines are kept in FOLDER and figures,
query by query, beside them or in --figures, so an interrupted run resumes, and a run with more corpora or seeds adds to
what is there. What has figures is not built again, even where FOLDER is gone. Fine-tuned dense retrieval gets
as many minutes as an index. Queries are asked as they were typed; with --spelling every system is measured once more
with their spelling corrected by a lexicon of the corpus. p-values are those of paired randomisation tests, corrected by
Holm for all tests shown.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console

from pixnar.base.errors import MissingPartError, PixnarError
from pixnar.base.storage import atomic_write
from pixnar.corpus import Corpus, open_corpus
from pixnar.corpus.queries import Perturbation
from pixnar.evaluation import bootstrap, evaluate, paired_difference
from pixnar.evaluation.baselines import build_bm25, build_dense, build_hybrid, describe, open_retriever
from pixnar.evaluation.baselines.bi_encoder import Tuning
from pixnar.evaluation.baselines.folder import BASELINE
from pixnar.evaluation.baselines.hybrid import RRF
from pixnar.evaluation.latency import environment
from pixnar.evaluation.run import with_spelling
from pixnar.index import Index
from pixnar.index.manifest import read_manifest
from pixnar.pipeline import fit
from pixnar.pipeline.run import default_cache
from pixnar.pipeline.tune import with_rule
from pixnar.recipe import Recipe, override
from pixnar.search import Retriever

MEASURES = ("MRR@10", "R@100", "P@1", "P@5", "nDCG@10")
GENERATED, DOCIDS, EVERYTHING = "docids alone, no copy", "docids alone", "all sources"
TUNED, DENSE, HYBRID, SAME = "dense, fine-tuned", "dense, docids", "hybrid", "hybrid over docids"
SPELLED = ", spelling corrected"
TESTS = ((GENERATED, TUNED), (GENERATED, SAME), (EVERYTHING, HYBRID), (EVERYTHING, DENSE))
"""Which row is held against which."""

Row = dict[str, Any]


def corrected(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that hold for all tests together.

    >>> corrected([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    out, least = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(np.argsort(p_values, kind="stable").tolist()):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        out[place] = least
    return out


class _Field:
    """The systems of one corpus, each built and measured once."""

    def __init__(
        self,
        corpus: str,
        folder: Path,
        minutes: float,
        split: str,
        queries: int,
        console: Console,
        settings: list[str],
        spelling: bool = False,
        figures: Path | None = None,
    ) -> None:
        self.corpus: Corpus = open_corpus(corpus)
        self.name, self.folder = Path(corpus).name, folder / Path(corpus).name
        self.minutes, self.split, self.queries, self.settings = minutes, split, queries, settings
        self.console, self.spelling = console, spelling
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = (figures or folder) / f"{self.name}.json.gz"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = self._read()

    @property
    def _asked_as(self) -> Row:
        """What figures must agree in to stand in one table."""
        return {"minutes": self.minutes, "split": self.split, "queries": self.queries, "settings": self.settings}

    def _read(self) -> dict[str, Row]:
        if not self.path.exists():
            return {}
        kept: Row = json.loads(gzip.decompress(self.path.read_bytes()))
        rows: dict[str, Row] = kept.pop("rows")
        if kept != self._asked_as:
            raise PixnarError(
                f"{self.path} has figures of {kept}, asked for are {self._asked_as}: give other --figures"
            )
        return rows

    def _write(self) -> None:
        content = json.dumps(self._asked_as | {"rows": self.rows}).encode()
        with atomic_write(self.path) as file:
            file.write(gzip.compress(content, mtime=0))

    def _has(self, *labels: str) -> bool:
        """Whether all figures of some systems are there."""
        forms = ("", SPELLED) if self.spelling else ("",)
        wanted = [label.partition("|") for label in labels]
        return all(f"{system}{form}{bar}{seed}" in self.rows for system, bar, seed in wanted for form in forms)

    def index(self, seed: int) -> None:
        """An index with the default recipe, by docids alone, without copying, and by all sources."""
        if self._has(*(f"{label}|{seed}" for label in (GENERATED, DOCIDS, EVERYTHING))):
            return
        folder = self.folder / f"index-{seed}"
        settings = [f"train.seed={seed}", "serve.keep_model=false", *self.settings]
        if self.minutes:
            settings.append(f"train.minutes={self.minutes}")
        self._build(folder, lambda: fit(self.corpus, folder, override(Recipe(), settings), cache=default_cache()))
        self._measure(f"{GENERATED}|{seed}", folder, lambda: _without_copy(folder), "docids")
        self._measure(f"{DOCIDS}|{seed}", folder, lambda: Index.load(folder, sources="docids"), "docids")
        self._measure(f"{EVERYTHING}|{seed}", folder, lambda: Index.load(folder))

    def baselines(self, *, tuned: bool) -> None:
        """BM25, dense retrieval and hybrids of both, each with its settings from dev."""
        cached: dict[str, Any] = {"cache": default_cache(), "precision": "int8"}
        dense: Callable[..., Any] = partial(build_dense, self.corpus, **cached)
        bm25: Callable[..., Any] = partial(build_bm25, self.corpus)
        tuning = Tuning(minutes=self.minutes or 2.0)

        def over() -> str:
            """The texts that dev selected for zero-shot dense retrieval."""
            self._build(self.folder / "dense", lambda: build["dense"](self.folder / "dense"))
            return str(read_manifest(self.folder / "dense", BASELINE)["options"]["over"])

        def hybrid(side: str, **options: Any) -> Callable[[Path], Any]:
            """A hybrid of a dense side and BM25, which are built if their figures were there without them."""

            def made(folder: Path) -> None:
                for name in (side, "BM25"):
                    self._build(self.folder / name, partial(build[name], self.folder / name))
                sides: dict[str, Any] = {"dense": self.folder / side, "bm25": self.folder / "BM25"}
                build_hybrid(self.corpus, folder, **sides, **options)

            return made

        build: dict[str, Callable[[Path], Any]] = {
            "BM25": partial(bm25, over="auto"),
            DENSE: dense,
            "dense": partial(dense, over="auto"),
            SAME: partial(build_hybrid, self.corpus, over="docids", **cached),
            HYBRID: hybrid("dense"),
            "hybrid, rank fusion": hybrid("dense", fusion=RRF),
        }
        if tuned:
            build[TUNED] = lambda folder: dense(folder, over=over(), tuning=tuning)
            build["hybrid, fine-tuned dense"] = hybrid(TUNED)
        for label in build:
            self._baseline(label, build[label])

    def _baseline(self, label: str, build: Callable[[Path], Any]) -> None:
        if self._has(label):
            return
        folder = self.folder / label
        try:
            self._build(folder, lambda: build(folder))
        except MissingPartError as error:
            self.console.print(f"{self.name}: no {label}: {error}")
            return
        self._measure(label, folder, lambda: open_retriever(folder, threads=1))

    def _build(self, folder: Path, build: Callable[[], Any]) -> None:
        if not (folder / "manifest.json").exists():
            self.console.print(f"{self.name}: building {folder.name}")
            build()

    def _measure(self, label: str, folder: Path, opened: Callable[[], Retriever], sources: str = "all") -> None:
        self._asked(label, folder, opened, sources, spelling=False)
        if self.spelling:
            system, bar, seed = label.partition("|")
            self._asked(f"{system}{SPELLED}{bar}{seed}", folder, opened, sources, spelling=True)

    def _asked(
        self, label: str, folder: Path, opened: Callable[[], Retriever], sources: str, *, spelling: bool
    ) -> None:
        if label in self.rows:
            return
        one = Perturbation(typos=1)
        asked = with_spelling(opened(), spelling, folder, self.corpus)
        found = evaluate(
            asked, self.corpus, self.split, measures=MEASURES, most=self.queries, timed=200, perturbation=one
        )
        assert found.unperturbed is not None
        assert found.latency is not None
        plain = {name: values.round(4).tolist() for name, values in found.unperturbed.per_query.items()}
        ranks_by = describe(folder, sources)
        self.rows[label] = {
            "per_query": plain,
            "typo": found.per_query["MRR@10"].round(4).tolist(),
            "ranks by": _no_copy(ranks_by) if label.startswith(GENERATED) else ranks_by,
            "ms": found.latency.p50,
            "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        }
        self.console.print(f"{self.name}  {label:32} {100 * np.mean(plain['MRR@10']):.2f}")
        self._write()


def _without_copy(folder: Path) -> Retriever:
    index = Index.load(folder, sources="docids")
    index.searcher.ranker = with_rule(index.ranker, index.ranker.scorer.rule.with_(copy=0.0))
    return index


def _no_copy(description: str) -> str:
    """What docids rank by without the copy term.

    >>> _no_copy("docids (log-sum-exp, copy 0.2)")
    'docids (log-sum-exp)'
    """
    return re.sub(r", copy [0-9.]+", "", description)


def summary(rows: dict[str, Row]) -> dict[str, Row]:
    """Figures of each system: means over its seeds, query by query, and intervals."""
    systems: dict[str, list[Row]] = {}
    for label, row in rows.items():
        systems.setdefault(label.split("|")[0], []).append(row)
    out: dict[str, Row] = {}
    for label, seeds in systems.items():
        per_query = {name: np.mean([row["per_query"][name] for row in seeds], 0) for name in MEASURES}
        typo = np.mean([row["typo"] for row in seeds], 0)
        out[label] = {
            "figures": {name: 100 * float(values.mean()) for name, values in per_query.items()},
            "interval": [100 * side for side in bootstrap(per_query["MRR@10"])],
            "seeds": [100 * float(np.mean(row["per_query"]["MRR@10"])) for row in seeds],
            "typo": 100 * float(typo.mean() / max(float(per_query["MRR@10"].mean()), 1e-9) - 1),
            "ms": float(np.median([row["ms"] for row in seeds])),
            "bytes": int(np.mean([row["bytes"] for row in seeds])),
            "ranks by": [row["ranks by"] for row in seeds],
            "queries": len(per_query["MRR@10"]),
            "per_query": per_query["MRR@10"],
        }
    return out


def tests(corpora: dict[str, dict[str, Row]]) -> list[Row]:
    """The differences in MRR@10 that the text speaks of, with p-values corrected for their number."""
    found: list[Row] = []
    for corpus, rows in corpora.items():
        for first, second in TESTS:
            if first in rows and second in rows:
                mean, p = paired_difference(rows[first]["per_query"], rows[second]["per_query"])
                found.append({"corpus": corpus, "first": first, "second": second, "difference": 100 * mean, "p": p})
    for row, p in zip(found, corrected([row["p"] for row in found]), strict=True):
        row["corrected p"] = p
    return found


def markdown(corpora: dict[str, dict[str, Row]], found: Sequence[Row]) -> str:
    """Tables for docs/results.md: figures, tests, robustness to a typo, and what each default index ranks by."""
    every = dict.fromkeys(label for rows in corpora.values() for label in rows)
    labels = [label for label in every if not label.endswith(SPELLED)]
    head = f"{' | '.join(corpora)} |\n|---|{'---:|' * len(corpora)}"

    def line(label: str, cell: Callable[[str, dict[str, Row]], str]) -> str:
        cells = [cell(label, rows) if label in rows else "–" for rows in corpora.values()]
        return f"| {label} | {' | '.join(cells)} |"

    lines = [f"| MRR@10 / R@100 | {head}", *(line(label, _figures) for label in labels)]
    lines += ["", "| corpus | system | against | MRR@10 | corrected p |", "|---|---|---|---:|---:|"]
    for row in found:
        test = f"{row['difference']:+.1f} | {row['corrected p']:.4f}"
        lines.append(f"| {row['corpus']} | {row['first']} | {row['second']} | {test} |")
    lines += [
        "",
        f"| one typo, change of MRR@10 (spelling corrected) | {head}",
        *(line(label, _typo) for label in labels),
    ]
    lines += ["", "| corpus | the default index ranks by |", "|---|---|"]
    for corpus, rows in corpora.items():
        if EVERYTHING in rows:
            lines += [f"| {corpus}, seed {i} | {text} |" for i, text in enumerate(rows[EVERYTHING]["ranks by"])]
    return "\n".join(lines)


def _figures(label: str, rows: dict[str, Row]) -> str:
    row = rows[label]
    half = (row["interval"][1] - row["interval"][0]) / 2
    return f"{row['figures']['MRR@10']:.1f} ± {half:.1f} / {row['figures']['R@100']:.1f}"


def _typo(label: str, rows: dict[str, Row]) -> str:
    """The share of MRR@10 that a typo costs, and in brackets that with correction, against corrected queries."""
    plain, spelled = rows[label], rows.get(label + SPELLED)
    if spelled is None:
        return f"{plain['typo']:+.1f} %"
    return f"{plain['typo']:+.1f} % ({spelled['typo']:+.1f} %)"


def main(
    corpora: list[str],
    out: Annotated[Path, typer.Option("-o", help="Where indexes, baselines and figures are kept.")],
    seeds: Annotated[int, typer.Option(help="Indexes of each corpus, trained with other random numbers.")] = 3,
    minutes: Annotated[float, typer.Option(help="Minutes of training; 0: what fit chooses by corpus size.")] = 0.0,
    tuned: Annotated[bool, typer.Option(help="Also fine-tune dense retrieval.")] = True,
    split: Annotated[str, typer.Option(help="The split that is asked.")] = "test",
    queries: Annotated[int, typer.Option(help="Queries of it, at most.")] = 2000,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 1,
    spelling: Annotated[bool, typer.Option(help="Also measure with the spelling of queries corrected.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Settings of the recipe.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Keep figures here, not in FOLDER: to go on elsewhere.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Build and measure every system on each corpus, and print the tables."""
    torch.set_num_threads(threads)
    console = Console(width=140)
    fields = [_Field(one, out, minutes, split, queries, console, settings or [], spelling, figures) for one in corpora]
    for field in fields:
        for seed in range(seeds):
            field.index(seed)
        field.baselines(tuned=tuned)
    summaries = {field.name: summary(field.rows) for field in fields}
    found = tests(summaries)
    print(markdown(summaries, found))
    if json_file:
        for rows in summaries.values():
            for row in rows.values():
                del row["per_query"]
        content = {"environment": environment(), "minutes": minutes, "split": split, "corpora": summaries}
        with atomic_write(json_file) as file:
            file.write(json.dumps(content | {"tests": found}, indent=1, ensure_ascii=False).encode())


if __name__ == "__main__":
    typer.run(main)
