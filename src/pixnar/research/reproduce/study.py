"""What all tables of a corpus share: trained models, what they found, and how good that is. Nothing is done twice."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import write_json
from pixnar.corpus import Corpus, open_corpus, state_of
from pixnar.evaluation import bootstrap, evaluate, paired_difference, write_run
from pixnar.evaluation.latency import environment
from pixnar.evaluation.measures import DEFAULT
from pixnar.index import Index
from pixnar.pipeline import fit
from pixnar.pipeline.run import default_cache
from pixnar.recipe import CLOVER, Recipe, override, to_dict
from pixnar.search import Retriever
from pixnar.vocab.phrases import FIXED_TOKENS

SAME = (
    "train.patience=0",  # every model takes all its steps; the best of its checks on dev is kept
    "train.contrast=0",  # every model reads with the encoder as it comes
    "train.softmax=sampled",
    "train.dev_queries=300",
    "serve.encoder=fp32",  # as that of dense retrieval
    "serve.keep_model=false",
    "serve.spelling=off",  # baselines are asked the queries as they were typed, too
)
"""What is the same for every model of a study, beside steps, seed and encoder."""

OWN = {
    "train": ("steps", "minutes", "epochs", "seed", "patience", "ranking", "l1", "l2", "l3"),
    "model": ("encoder",),
    "vocab": ("kind", "size"),
    "scoring": ("score", "copy"),
    "lexical": ("docids", "text"),
    "fuse": ("dense",),
    "shortlist": ("learn",),
}
"""Settings that tables set themselves: what they say would not be true with others."""


@dataclass(frozen=True)
class StudyPlan:
    """What a study is about and how far it goes."""

    corpus: str
    out: Path
    minutes: float = 2.0  # of training for the slowest model; the others take as many steps
    steps: int = 0  # instead of minutes
    split: str = "dev"
    queries: int = 2000
    size: int = 131072  # tokens of the largest phrase vocabulary, if the corpus has so many
    timed: int = 200
    own_ngrams: bool = False  # give every method of Table 4 the query's own n-grams, and copy them
    tuned: bool = True  # fine-tune dense retrieval, too: that encodes all docids once more
    seed: int = 0
    encoder: str = Recipe().model.encoder
    cache: Path | None = None
    threads: int = 2
    settings: tuple[str, ...] = ()  # further settings of every recipe
    skip_bad_rows: bool = False


@dataclass(frozen=True)
class Judged:
    """What a system reached: means and a figure per query; and when that was found out."""

    label: str
    figures: dict[str, float]
    per_query: dict[str, list[float]]
    queries: list[str] = field(default_factory=list)
    relevant: list[int] = field(default_factory=list)  # documents of each query
    facts: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)

    def interval(self, name: str) -> tuple[float, float]:
        """Where a mean may lie."""
        return bootstrap(np.array(self.per_query[name]))

    def p_value(self, other: Judged, name: str) -> float:
        """How likely luck alone makes the two differ as much."""
        if self.queries != other.queries:
            raise PixnarError(f"{self.label} and {other.label} were asked other queries: remove the folder judged")
        return paired_difference(np.array(self.per_query[name]), np.array(other.per_query[name])).p_value


class Study:
    """One corpus, one budget; models and figures are kept in ``OUT/work`` and found again by what made them."""

    def __init__(self, plan: StudyPlan, progress: Progress | None = None, say: Callable[[str], None] = print) -> None:
        self.plan, self.progress, self.say = plan, progress, say
        self.corpus: Corpus = open_corpus(plan.corpus, skip_bad_rows=plan.skip_bad_rows)
        self._state = state_of(self.corpus)
        self.work = plan.out / "work"
        self._check()
        if "dev" not in self.corpus.splits():
            raise PixnarError(f"{plan.corpus} has no dev split: settings are chosen on dev, so a study needs one")
        if plan.split not in self.corpus.splits():
            known = ", ".join(self.corpus.splits())
            raise PixnarError(f"{plan.corpus} has no split {plan.split!r}: it has {known}")
        try:
            self.work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PixnarError(f"cannot write to {plan.out}: {error.strerror}; give a folder") from error
        self.commits: set[str] = set()  # at which the figures of this run were found
        self._wanted = 0
        self._seen: set[Path] = set()  # of the present table
        self._times: list[float] = []  # seconds a model took

    def _check(self) -> None:
        """Whatever can be known to fail is better known before the first model is trained."""
        for setting in self.plan.settings:
            section, _, name = setting.partition("=")[0].strip().partition(".")
            if name in OWN.get(section, ()):
                raise PixnarError(
                    f"--set {setting}: {section}.{name} is what tables are about; see --help for what to set"
                )
        if self.plan.size < FIXED_TOKENS:
            raise PixnarError(f"size {self.plan.size} is too small for phrases: give {FIXED_TOKENS} or more")
        self._recipe(Recipe(), (), 0.0, 1)

    @property
    def name(self) -> str:
        """What the corpus is called in tables: its folder."""
        path = Path(self.plan.corpus)
        return path.parent.name if path.name == "corpus" and path.parent.name else path.name

    def expect(self, models: int) -> None:
        """A table says how many models it will train, so that it can be said how long that takes."""
        self._wanted = models
        self._seen.clear()

    @cached_property
    def steps(self) -> int:
        """Steps of every model: as many as word-pieces, which need most slots, take in the plan's minutes."""
        return self.plan.steps or int(self.opened(self.word_pieces()).manifest["facts"]["steps"])

    def recipe(self, base: Recipe, settings: Sequence[str] = ()) -> Recipe:
        """A recipe with the settings of this study, trained for as many steps as all others."""
        return self._recipe(base, settings, 0.0, self.steps)

    def word_pieces(self, *settings: str, corpus: Corpus | None = None) -> Path:
        """The index of CLOVERv2: this model with the encoder's own word pieces, trained for the whole budget."""
        limits = (0.0, self.plan.steps) if self.plan.steps else (self.plan.minutes, 0)
        if settings or corpus is not None:
            limits = 0.0, self.steps
        return self.index("CLOVERv2", self._recipe(CLOVER, settings, *limits), corpus)

    def phrases(self, size: int, *settings: str, corpus: Corpus | None = None) -> Path:
        """The index of the same model with a vocabulary of phrases in place of word pieces, and nothing else."""
        base = override(CLOVER, ["vocab.kind=phrase", f"vocab.size={size}"])
        return self.index(f"phrases {size}", self.recipe(base, settings), corpus)

    def _recipe(self, base: Recipe, settings: Sequence[str], minutes: float, steps: int) -> Recipe:
        plan = self.plan
        mine = [f"train.minutes={minutes}", f"train.steps={steps}", f"train.seed={plan.seed}"]
        return override(base, [*SAME, f"model.encoder={json.dumps(plan.encoder)}", *mine, *plan.settings, *settings])

    def index(self, label: str, recipe: Recipe, corpus: Corpus | None = None) -> Path:
        """The folder of an index, built now if it is not there; an interrupted build goes on."""
        source = corpus or self.corpus
        folder = self.work / "indexes" / self.key(label, [source.name, to_dict(recipe)])
        self.build(
            label,
            folder,
            lambda: fit(source, folder, recipe, cache=self.cache, threads=self.plan.threads, progress=self.progress),
        )
        return folder

    def key(self, label: str, facts: Any) -> str:
        """A name for what was made of this corpus as its files are now, with these facts."""
        return f"{_slug(label)}-{_digest([self._state, facts])}"

    def build(self, label: str, folder: Path, make: Callable[[], Any], *, slow: bool = True) -> None:
        """Make a folder with a manifest, if it is not there; what is `slow` is counted, and said before it begins."""
        if slow:
            self._seen.add(folder)
        if (folder / "manifest.json").exists():
            return
        if not slow:
            make()
            return
        left = ""
        if self._times:
            rest = max(self._wanted - len(self._seen) + 1, 1) * sum(self._times) / len(self._times)
            left = f", about {max(1, round(rest / 60))} minutes left"
        self.say(f"{self.name}: {label} (model {len(self._seen)} of {max(self._wanted, len(self._seen))}{left})")
        began = time.monotonic()
        make()
        self._times.append(time.monotonic() - began)

    @property
    def cache(self) -> Path:
        """Where vectors of texts are kept."""
        return self.plan.cache or default_cache()

    def opened(self, folder: Path, sources: str = "all", *, threads: int = 0) -> Index:
        """An index, ready to be asked."""
        return Index.load(folder, threads=threads or self.plan.threads, sources=sources)

    def judged(
        self,
        label: str,
        key: Any,
        make: Callable[[], Retriever],
        *,
        measures: Sequence[str] = DEFAULT,
        corpus: Corpus | None = None,
        facts: dict[str, Any] | None = None,
    ) -> Judged:
        """What a system reaches on the plan's split; `key` is what its figures depend on beside that."""
        plan, source = self.plan, corpus or self.corpus
        asked = [source.name, plan.split, plan.queries, list(measures), key]
        path = self.work / "judged" / f"{self.key(str(key), asked)}.json"  # whatever a table calls it
        if path.exists():
            known = Judged(**json.loads(path.read_bytes()) | {"label": label})
            self.commits.add(known.made["commit"])
            return known
        path.parent.mkdir(exist_ok=True)
        self.say(f"{self.name}: asking {label}")
        found = evaluate(
            make(),
            source,
            plan.split,
            measures=measures,
            most=plan.queries,
            progress=self.progress,
        )
        made = Judged(
            label,
            found.figures,
            {name: values.tolist() for name, values in found.per_query.items()},
            list(found.judgements),
            [sum(grade > 0 for grade in grades.values()) for grades in found.judgements.values()],
            facts or {},
            {name: value for name, value in environment().items() if name in ("cpu", "commit", "date")},
        )
        if all(len(text.split()) == 1 for query, hits in found.run.items() for text in (query, *(h[0] for h in hits))):
            write_run(path.with_suffix(".trec.gz"), found.run, _slug(label))
        self.commits.add(made.made["commit"])
        write_json(path, made.__dict__)
        return made

    def kept(self, label: str, facts: Any, make: Callable[[], Any]) -> Any:
        """Something that JSON can hold, made once."""
        path = self.work / "judged" / f"{self.key(label, facts)}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_json(path, make())
        return json.loads(path.read_bytes())

    def judged_index(
        self,
        label: str,
        folder: Path,
        *,
        sources: str = "all",
        **changes: Any,
    ) -> Judged:
        """The same for an index."""
        facts = json.loads((folder / "manifest.json").read_bytes())["facts"]
        return self.judged(
            label,
            [folder.name, sources],
            lambda: self.opened(folder, sources),
            facts={name: facts.get(name) for name in ("vocabulary", "slots", "tokens_per_docid", "steps", "best_step")},
            **changes,
        )


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")


def _digest(value: Any) -> str:
    return xxhash.xxh3_64(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]
