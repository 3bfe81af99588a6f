"""The demo: a real corpus, phrases, an index, its figures beside baselines on held-out terms, and searches."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pixnar.base.errors import FileFormatError
from pixnar.base.progress import Progress
from pixnar.base.storage import file_digest, write_json
from pixnar.corpus import Corpus, open_corpus, write_demo
from pixnar.corpus.demo import NOTICE
from pixnar.evaluation import evaluate
from pixnar.evaluation.baselines import build_bm25, build_dense, build_hybrid, describe, open_retriever
from pixnar.evaluation.baselines.entries import AUTO
from pixnar.evaluation.baselines.folder import BASELINE
from pixnar.evaluation.baselines.hybrid import RRF, WEIGHTS
from pixnar.evaluation.queries import read_queries
from pixnar.evaluation.run import with_spelling
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL
from pixnar.index import Index
from pixnar.index.manifest import INDEX, NAME, Kind, read_manifest
from pixnar.pipeline import fit
from pixnar.pipeline.run import default_cache
from pixnar.recipe import Recipe, override
from pixnar.vocab import Vocabulary, inspect

STAGES = {"corpus": 3, "phrases": 3, "index": 215, "baselines": 45, "evaluation": 45, "searches": 1}
"""The seconds that each stage takes on two cores."""

QUERIES = ("sugar disease with kidney trouble", "stone in the kidney", "bitten by a dog", "broken wrist")
MEASURES = ("MRR@10", "R@5", "R@20", "R@100")
BASELINES = {"bm25": "BM25", "dense": "dense", "hybrid": "hybrid of both", "rrf": "rank fusion of both"}
"""Folders of the baselines, and what the table calls them."""

_VOCABULARY_SIZE = 16_384
_STEPS = 900  # of training: three quarters of a minute where nothing else is going on
_RECIPE = (
    f"vocab.size={_VOCABULARY_SIZE}",
    f"train.steps={_STEPS}",
    "train.dev_queries=200",
    "train.patience=0",
    "shortlist.minutes=0.3",
    "fuse.depth=100",
    "fuse.dev_queries=400",
)
_TIMED = 200  # queries for the latency of a system
_WORDY, _SHOWN = 5, 3  # queries of so many words are shown, so many
_WIDTH = 60  # of a title
_SOURCES = {
    DOCIDS: "its docids",
    LEXICAL: "words of the query",
    EXPANSION: "expected phrases",
    DENSE: "dense vectors",
}


def run_demo(
    folder: Path, *, minutes: float = 1.5, queries: int = 500, threads: int = 0, progress: Progress | None = None
) -> None:
    """Run the whole product on the demo corpus, stage by stage, with a heading and the results of each.

    What an earlier run built in the folder is reused, and what it began is resumed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = {name: folder / name for name in ("corpus", "phrases.vocab", "index", *BASELINES)}
    figures = Figures(folder, queries)
    done = {
        "corpus": place["corpus"].exists(),
        "phrases": place["phrases.vocab"].exists(),
        "index": is_built(place["index"], INDEX),
        "baselines": all(is_built(place[name]) for name in BASELINES),
        "evaluation": not figures.missing,
    }
    console = Console(highlight=False)
    headings = _headings(console, done)

    def tell(line: str) -> None:
        for part in Text.from_markup(line).wrap(console, console.width - 2):
            console.print("  ", part, sep="", soft_wrap=True)

    def tell_reused(*folders: Path) -> None:
        tell(f"[dim]{' and '.join(map(str, folders))}: reused[/dim]")

    next(headings)
    if done["corpus"]:
        tell_reused(place["corpus"])
    else:
        made = write_demo(place["corpus"])
        tell(
            f"{place['corpus']}: {made.documents:,} codes of ICD-10-CM and {made.docids:,} terms that name them, their "
            f"docids. {made.dev_queries:,} further terms are held out as dev, {made.test_queries:,} as test queries."
        )
    tell(f"[dim]{NOTICE}[/dim]")
    corpus = open_corpus(place["corpus"])

    next(headings)
    if done["phrases"]:
        vocabulary = Vocabulary.load(place["phrases.vocab"])
        tell_reused(place["phrases.vocab"])
    else:
        docids = (row.docid for row in corpus.docids(progress=progress))
        vocabulary = Vocabulary.build(docids, _VOCABULARY_SIZE, threads=threads, progress=progress)
        vocabulary.save(place["phrases.vocab"])
    found = inspect.inspect(vocabulary, top=4)
    if not (folder / "phrases.png").exists():
        inspect.plot(found, folder / "phrases.png")
    used = ", ".join(escape(f"[{phrase}]") for phrase, _ in found.top)
    tell(f"{found.size:,} tokens: words, pieces, and phrases such as {used}.")
    tell(f"A docid has {found.mean_length:.1f} tokens on average. Dev queries, which it has never seen, in its tokens:")
    wordy = [text for text in read_queries(corpus, "dev", 100).texts if len(text.split()) >= _WORDY]
    for text in wordy[:_SHOWN]:
        tell("  " + escape("".join(f"[{token}]" for token in vocabulary.tokens(text))))

    next(headings)
    if done["index"]:
        tell_reused(place["index"])
    else:
        tell(
            "The encoder turns docids into vectors. Phrase rows are solved so that they add up to these vectors. Then "
            f"a model learns, for {_STEPS} steps or {minutes:g} minutes, to rank the right code first when it reads "
            "another term of it."
        )
        recipe = override(Recipe(), [*_RECIPE, f"train.minutes={minutes}"])
        told: dict[str, Any] = {"progress": progress, "say": lambda line: tell(escape(line))}
        fit(corpus, place["index"], recipe, threads=threads, overwrite=True, **told)
    index = Index.load(place["index"])

    next(headings)
    if done["baselines"]:
        tell_reused(*(place[name] for name in BASELINES))
    else:
        precision = index.manifest["facts"].get("vectors", {}).get("precision", "fp32")
        build_baselines(folder, corpus, index.manifest["recipe"]["model"]["encoder"], precision, progress)
        tell("BM25, dense retrieval by the same encoder, their weighted sum and their reciprocal rank fusion:")
        for name in BASELINES:
            tell(f"{place[name]}: {escape(describe(place[name]))}")

    next(headings)
    figures.measure(corpus, progress)
    asked = max(row["queries"] for row in figures.rows.values())
    tell(
        f"{asked:,} terms of the test split, on which nothing was chosen; right is the code that a term was taken "
        "from. Per cent; ± is half a 95 % interval. Milliseconds are the median, one query at a time, one thread."
    )
    console.print()
    console.print(figures.table())
    console.print()
    tell("What each row ranks by, all weights and settings chosen on dev:")
    for line in figures.sources():
        tell(escape(line))

    next(headings)
    show_examples(console, index)
    pixnar = command()
    console.print(
        f"\npictures   {folder / 'phrases.png'}, {place['index'] / 'training' / 'loss.png'}\n"
        f'search     {pixnar} search {place["index"]} "fear of spiders"\n'
        f'see why    {pixnar} search {place["index"]} "fear of spiders" --explain\n'
        f"measure    {pixnar} evaluate {place['index']} {place['corpus']} --split dev\n"
        f"your own   {pixnar} fit CORPUS -o INDEX, after docs/your-own-corpus.md\n"
        f"a page     {pixnar} serve {place['index']}, then open http://127.0.0.1:8000",
        soft_wrap=True,
        markup=False,
    )


def _headings(console: Console, done: dict[str, bool]) -> Iterator[None]:
    """Print the heading of the next stage whenever it is asked; what was slow so far makes the rest longer."""
    names, spent, expected = list(STAGES), 0.0, 0.0
    for number, name in enumerate(names, 1):
        pace = max(1.0, spent / expected) if expected > 20 else 1.0  # kept vectors do not make a machine fast
        left = pace * sum(STAGES[later] for later in names[number - 1 :] if not done.get(later))
        minutes = round(left / 60)
        rest = f"about {minutes} minutes" if minutes > 1 else "about a minute" if left > 30 else "a few seconds"
        console.print(f"\n[bold]{number} of {len(names)}  {name}[/bold]  [dim]({rest} to the end)[/dim]")
        began = time.monotonic()
        yield
        if not done.get(name):
            spent, expected = spent + time.monotonic() - began, expected + STAGES[name]


def is_built(folder: Path, kind: Kind = BASELINE) -> bool:
    """Whether there is a baseline, or an index, that this release can open."""
    try:
        return bool(read_manifest(folder, kind))
    except FileFormatError:
        return False


def build_baselines(
    folder: Path, corpus: Corpus, encoder: str, precision: str = "fp32", progress: Progress | None = None
) -> None:
    """BM25, dense retrieval by the encoder of the index, and both fused, each unless it is there.

    With the precision of the index's own vectors they come from the cache.
    """
    bm25, dense, hybrid, ranks = (folder / name for name in BASELINES)
    shared: dict[str, Any] = {"overwrite": True, "progress": progress}
    if not is_built(bm25):
        build_bm25(corpus, bm25, over=AUTO, **shared)
    if not is_built(dense):
        vectors: dict[str, Any] = {"encoder": encoder, "precision": precision, "cache": default_cache()}
        build_dense(corpus, dense, over=AUTO, **vectors, **shared)
    for place, fusion in ((hybrid, WEIGHTS), (ranks, RRF)):
        if not is_built(place):
            build_hybrid(corpus, place, fusion=fusion, dense=dense, bm25=bm25, **shared)


class System(NamedTuple):
    """What is measured: its name, its folder, and which sources of an index rank."""

    name: str
    folder: Path
    sources: str = "all"


class Figures:
    """Measured so far, by system; a figure counts while the folder it was measured on is the same."""

    def __init__(self, folder: Path, queries: int) -> None:
        self.systems = [
            System("pixnar, all sources", folder / "index"),
            System("pixnar, docids alone", folder / "index", "docids"),
            *(System(name, folder / place) for place, name in BASELINES.items()),
        ]
        self._path, self._queries = folder / "figures.json", queries
        try:
            self.rows: dict[str, dict[str, Any]] = dict(json.loads(self._path.read_bytes()))
        except (OSError, ValueError, TypeError):
            self.rows = {}

    @property
    def missing(self) -> list[System]:
        """Those to be measured, for the first time or again."""
        return [system for system in self.systems if self.rows.get(system.name, {}).get("of") != self._of(system)]

    def measure(self, corpus: Corpus, progress: Progress | None = None) -> None:
        """Ask every system that is missing; each is on disk before the next is asked."""
        for system in self.missing:
            retriever = open_retriever(system.folder, threads=1, sources=system.sources)
            found = evaluate(
                with_spelling(retriever, False, system.folder, corpus),  # as typed, like the baselines
                corpus,
                "test",
                measures=MEASURES,
                most=self._queries,
                timed=_TIMED,
                progress=progress,
            )
            low, high = found.intervals()[MEASURES[0]]
            figures = {"figures": found.figures, "within": (high - low) / 2, "queries": len(found.run)}
            assert found.latency is not None
            self.rows[system.name] = {"of": self._of(system), **figures, "ms": found.latency.p50}
            write_json(self._path, self.rows, indent=2)

    def table(self) -> Table:
        """For people: per cent, and milliseconds."""
        table = Table("", *MEASURES, "ms a query", box=None, padding=(0, 2, 0, 0), header_style="dim")
        for column in table.columns[1:]:
            column.justify = "right"
        for number, system in enumerate(self.systems):
            row = self.rows[system.name]
            first, *others = (f"{100 * row['figures'][measure]:.1f}" for measure in MEASURES)
            cells = [f"{first} ± {100 * row['within']:.1f}", *others, f"{row['ms']:.1f}"]
            table.add_row(system.name, *cells, style="bold" if number == 0 else "")
        return table

    def sources(self) -> list[str]:
        """What each row ranks by."""
        return [f"{system.name}: {describe(system.folder, system.sources)}" for system in self.systems]

    def _of(self, system: System) -> list[Any]:
        """What a figure was measured on; None of a system that is not built."""
        path = system.folder / NAME
        return [file_digest(path) if path.exists() else None, self._queries]


def command() -> str:
    """How a shell finds this very pixnar: by name, or by its path."""
    own, found = Path(sys.executable).with_name("pixnar"), shutil.which("pixnar")
    if not own.exists() or (found and os.path.samefile(found, own)):
        return "pixnar"
    here = Path.cwd()
    return str(own.relative_to(here)) if own.is_relative_to(here) else str(own)


def show_examples(console: Console, index: Index) -> None:
    """Ask, and tell: the two best codes of each query, the docid that speaks for the first, and what ranked it."""
    index.search(QUERIES[0], 1)  # the first query warms the encoder up
    for query in QUERIES:
        told = index.explain(query, 2)
        milliseconds = sum(told["microseconds"].values()) / 1e3
        console.print(f"  [bold]{escape(query)}[/bold]  [dim]{milliseconds:.0f} ms[/dim]")
        for place, hit in enumerate(told["hits"], 1):
            title = index.table.document(hit["doc_id"]).title
            short = title if len(title) <= _WIDTH else title[: _WIDTH - 1].rstrip() + "…"
            console.print(f"    {place}  {hit['score']:5.1f}  {escape(hit['doc_id']):<8} {escape(short)}")
            if place == 1:
                for line in why(index, hit):
                    console.print(f"              [dim]{escape(line)}[/dim]", soft_wrap=True)


def why(index: Index, hit: dict[str, Any]) -> list[str]:
    """Why a hit was found: its best docid, token by token with what each scores, and what every source adds."""
    best = hit["docids"][0]
    tokens = "".join(f"[{token} {score:.1f}]" for token, score in best["tokens"])
    lines = [f"named by {tokens}"]
    fusion = index.ranker.fusion
    if fusion is not None:
        parts = {
            source: weight * hit["sources"][source] / fusion.scales.get(source, 1.0)
            for source, weight in fusion.weights.items()
            if source in hit["sources"]
        }
        ranked = sorted(parts.items(), key=lambda part: -part[1])
        lines.append("ranked by " + " + ".join(f"{_SOURCES.get(name, name)} {part:.1f}" for name, part in ranked))
    return lines
