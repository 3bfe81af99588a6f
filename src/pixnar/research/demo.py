"""The first five minutes: corpus, phrases, training, figures beside baselines, searches, and what to do next."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from pixnar.base.progress import Progress, stage_name
from pixnar.corpus import Corpus, open_corpus, write_demo
from pixnar.corpus.demo import NOTICE
from pixnar.evaluation.baselines import describe
from pixnar.evaluation.queries import read_queries
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL
from pixnar.index import Index
from pixnar.index.manifest import NAME, OlderIndexError, read_manifest
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from pixnar.research.demo_figures import BASELINES, SPLIT, Figures, build_baselines, is_built
from pixnar.vocab import Vocabulary, inspect

_MEASURED = 20.0  # seconds of finished work from which on the machine's pace is known


class DemoStage(NamedTuple):
    """A part of the demo: the seconds it takes on two cores, and those that no machine changes, since a clock ends it.

    `opens` are names of progress that only this stage reports: where one is met, the stage has begun.
    """

    name: str
    work: float
    fixed: float = 0.0
    opens: tuple[str, ...] = ()


class Clock:
    """Counts stages; `left` seconds follow from what each is expected to take and how fast this machine has been.

    >>> stages = [DemoStage("corpus", 1), DemoStage("training", 20, 60, opens=("training",)), DemoStage("examples", 1)]
    >>> clock = Clock(stages)
    >>> clock.begin("corpus"), clock.words()
    ('1 of 3  corpus', 'about a minute')
    >>> clock.met("training: loss 2.5"), clock.begin("examples"), clock.words()
    ('2 of 3  training', '3 of 3  examples', 'a few seconds')
    """

    def __init__(
        self, stages: Iterable[DemoStage], *, there: Iterable[str] = (), now: Callable[[], float] = time.monotonic
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


DEMO_VOCABULARY_SIZE = 16_384
TEST_QUERIES = 500
STEPS = 900  # of training: three quarters of a minute where nothing else is going on
MINUTES = 2.0  # … and what it may take where something is

_QUICK = (
    "train.dev_queries=200",
    "train.patience=0",
    "shortlist.minutes=0.3",
    "fuse.depth=100",
    "fuse.dev_queries=400",
)
_INDENT = "  "
_SOON = 5.0  # seconds: a rest that needs no words
_WORDY, _SHOWN = 5, 3  # queries of so many words are shown, so many
_CORPUS, _PHRASES, _TRAINING, _SHORTLIST = "corpus", "phrases", "training", "shortlist"
_CHOICES, _BASELINES, _EVALUATION, _EXAMPLES = "choices on dev", "baselines", "evaluation", "searches"
_OF_FIT = (_TRAINING, _SHORTLIST, _CHOICES)


def run_demo(
    folder: Path,
    *,
    minutes: float = MINUTES,
    queries: int = TEST_QUERIES,
    threads: int = 0,
    progress: Progress | None = None,
) -> None:
    """Everything there is, on the demo corpus, told stage by stage.

    What an earlier run made in the folder is reused, and what it began is gone on with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _Demo(folder, minutes, queries, threads, progress).all()


class _Demo:
    def __init__(self, folder: Path, minutes: float, queries: int, threads: int, progress: Progress | None) -> None:
        self.folder, self.minutes, self.queries, self.threads = folder, minutes, queries, threads
        self.console = Console(highlight=False)
        self.figures = Figures(folder, queries)
        self.clock = Clock(_stages(), there=self._there())
        self.progress = self.clock.told(progress, self._heading)

    def all(self) -> None:
        self.console.print(f"The demo: {len(self.clock.stages)} stages, {self.clock.words()} in all.")
        corpus = self.corpus()
        vocabulary = self.phrases(corpus)
        index = self.index(corpus, vocabulary)
        self.baselines(corpus, index)
        self.evaluation(corpus)
        self._begin(_EXAMPLES)
        show_examples(self.console, index)
        self.farewell()

    def corpus(self) -> Corpus:
        """Written unless it is there."""
        self._begin(_CORPUS)
        place = self.folder / "corpus"
        if place.exists():
            self._reused(place)
        else:
            made = write_demo(place)
            self._tell(
                f"{place}: {made.documents:,} codes of ICD-10-CM and {made.docids:,} terms that name them, their "
                f"docids. {made.dev_queries:,} further terms are held out as dev, {made.test_queries:,} as test "
                "queries."
            )
        self._tell(f"[dim]{NOTICE}[/dim]")
        return open_corpus(place)

    def phrases(self, corpus: Corpus) -> Vocabulary:
        """Learned unless they are there."""
        self._begin(_PHRASES)
        place = self.folder / "phrases.vocab"
        if place.exists():
            vocabulary = Vocabulary.load(place)
            self._reused(place)
        else:
            docids = (row.docid for row in corpus.docids(progress=self.progress))
            vocabulary = Vocabulary.build(docids, DEMO_VOCABULARY_SIZE, threads=self.threads, progress=self.progress)
            vocabulary.save(place)
        found = inspect.inspect(vocabulary, top=4)
        if not (self.folder / "phrases.png").exists():
            inspect.plot(found, self.folder / "phrases.png")
        used = ", ".join(escape(f"[{phrase}]") for phrase, _ in found.top)
        self._tell(f"{found.size:,} tokens: words, pieces, and phrases such as {used}.")
        self._tell(
            f"A docid takes {found.mean_length:.1f} of them. Dev queries, which it has never seen, cut at its tokens:"
        )
        wordy = [text for text in read_queries(corpus, "dev", 100).texts if len(text.split()) >= _WORDY]
        for text in wordy[:_SHOWN]:
            self._tell(_INDENT + escape("".join(f"[{token}]" for token in vocabulary.tokens(text))))
        return vocabulary

    def index(self, corpus: Corpus, vocabulary: Vocabulary) -> Index:
        """Trained unless it is there."""
        place = self.folder / "index"
        if self._finished(place):
            self.clock.begin(_OF_FIT[-1])
            last = len(self.clock.stages) - 3
            self._heading(f"3 to {last} of {len(self.clock.stages)}  {', '.join(_OF_FIT)}")
            self._reused(place)
        else:
            self._begin(_TRAINING)
            self._tell(
                "Docids go through the encoder once. Phrase rows are solved so that they add up to these vectors. "
                f"Then a model learns, for {STEPS} steps or {self.minutes:g} minutes, to rank the right code first "
                "when it reads another term of it."
            )
            budget = (f"train.steps={STEPS}", f"train.minutes={self.minutes}")
            recipe = override(Recipe(), [f"vocab.size={DEMO_VOCABULARY_SIZE}", *budget, *_QUICK])
            fit(corpus, place, recipe, threads=self.threads, progress=self.progress, say=self._said, overwrite=True)
        return Index.load(place)

    def baselines(self, corpus: Corpus, index: Index) -> None:
        """BM25, dense retrieval and two hybrids, built unless they are there."""
        self._begin(_BASELINES)
        places = [self.folder / name for name in BASELINES]
        if all(map(is_built, places)):
            self._reused(*places)
            return
        precision = index.manifest["facts"].get("vectors", {}).get("precision", "fp32")
        encoder = index.manifest["recipe"]["model"]["encoder"]
        build_baselines(self.folder, corpus, encoder, precision, self.progress)
        self._tell("BM25, dense retrieval by the same encoder, their weighted sum and their reciprocal rank fusion:")
        for place in places:
            self._tell(f"{place}: {escape(describe(place))}")

    def evaluation(self, corpus: Corpus) -> None:
        """Measured unless it was."""
        self._begin(_EVALUATION)
        if self.figures.missing:
            self.figures.measure(corpus, self.progress)
        else:
            self._tell("[dim]the figures are there already[/dim]")
        asked = {row["queries"] for row in self.figures.rows.values()}
        self._tell(
            f"{max(asked):,} terms of the {SPLIT} split, on which nothing was chosen; right is the code that a term "
            "was taken from. Per cent; ± is half a 95 % interval. Milliseconds are the median, one query at a time, "
            "one thread."
        )
        self.console.print()
        self.console.print(self.figures.table())
        self.console.print()
        self._tell("What each row ranks by, all weights and settings chosen on dev:")
        for line in self.figures.sources():
            self._tell(escape(line))

    def farewell(self) -> None:
        """Where to go from here; the last line starts the page."""
        pixnar, index, corpus = command(), self.folder / "index", self.folder / "corpus"
        self.console.print(
            f"\npictures   {self.folder / 'phrases.png'}, {index / 'training' / 'loss.png'}\n"
            f'search     {pixnar} search {index} "fear of spiders"\n'
            f'see why    {pixnar} search {index} "fear of spiders" --explain\n'
            f"measure    {pixnar} evaluate {index} {corpus} --split dev\n"
            f"your own   {pixnar} fit CORPUS -o INDEX, after docs/your-own-corpus.md\n"
            f"a page     {pixnar} serve {index}, then open http://127.0.0.1:8000",
            soft_wrap=True,
            markup=False,
        )

    def _there(self) -> set[str]:
        """The stages whose work is done."""
        done = {_CORPUS} if (self.folder / "corpus").exists() else set()
        done |= {_PHRASES} if (self.folder / "phrases.vocab").exists() else set()
        done |= set(_OF_FIT) if self._finished(self.folder / "index") else set()
        done |= {_BASELINES} if all(is_built(self.folder / name) for name in BASELINES) else set()
        return done | (set() if self.figures.missing else {_EVALUATION})

    def _finished(self, place: Path) -> bool:
        """Whether there is an index that this release can open."""
        if not (place / NAME).exists():
            return False
        try:
            read_manifest(place)
        except OlderIndexError:
            return False
        return True

    def _begin(self, stage: str) -> None:
        self._heading(self.clock.begin(stage))

    def _heading(self, text: str) -> None:
        rest = f"  [dim]({self.clock.words()} to the end)[/dim]" if self.clock.left > _SOON else ""
        self.console.print(f"\n[bold]{text}[/bold]{rest}")

    def _said(self, line: str) -> None:
        self._tell(escape(line))

    def _tell(self, line: str) -> None:
        text = Text.from_markup(line)
        for part in text.wrap(self.console, self.console.width - len(_INDENT)):
            self.console.print(_INDENT, part, sep="", soft_wrap=True)

    def _reused(self, *places: Path) -> None:
        self._tell(f"[dim]{' and '.join(map(str, places))}: there already, reused[/dim]")


def command() -> str:
    """How a shell finds this very pixnar: by name, or by its path."""
    own, found = Path(sys.executable).with_name("pixnar"), shutil.which("pixnar")
    if not own.exists() or (found and os.path.samefile(found, own)):
        return "pixnar"
    here = Path.cwd()
    return str(own.relative_to(here)) if own.is_relative_to(here) else str(own)


def _stages() -> list[DemoStage]:
    """What each takes on two cores; the shortlist ends by the clock."""
    return [
        DemoStage(_CORPUS, 3),
        DemoStage(_PHRASES, 3),
        DemoStage(_TRAINING, 130),
        DemoStage(_SHORTLIST, 5, 18, opens=("shortlist",)),
        DemoStage(_CHOICES, 60, opens=("choosing the score on dev",)),
        DemoStage(_BASELINES, 45),
        DemoStage(_EVALUATION, 45),
        DemoStage(_EXAMPLES, 1),
    ]


QUERIES = (
    "sugar disease with kidney trouble",
    "stone in the kidney",
    "bitten by a dog",
    "broken wrist",
)
_SOURCES = {
    DOCIDS: "its docids",
    LEXICAL: "words of the query",
    EXPANSION: "expected phrases",
    DENSE: "dense vectors",
}
_WIDTH = 60  # of a title


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
