"""What each step of the model is worth: from phrases read alone to ranked documents, by docids alone, on dev.

    python -m pixnar.benchmarks.steps CORPUS … --steps 1200 --seeds 3 --json steps.json [--plot steps.png]

No copy term and no fusion but in the last row. Every trained row takes the weights of its last step, so no step is
chosen on the queries that are reported; the last row's copy weight is chosen on the other half of them.

Rows: `ranked` solved rows trained by ranking documents · `pieces` with rows of word pieces · `mined` with negatives
mined again by the model · `passages` with sentences of the text as inputs, where there is text · `slots` with l1 and
l3 beside it, the default · `lists` order, slots and shortlist of that model · `dense-teacher`, `hybrid-teacher` the
default distilled from a teacher · `live` the default with the encoder fine-tuned at the end · `contrast` the encoder
fine-tuned by contrast first, then everything as in the default · `contrast-teacher` the same distilled from the tuned
encoder's vectors · `copy` the default and `contrast` with a copy term.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from pixnar.base.storage import atomic_write
from pixnar.corpus import Corpus, open_corpus
from pixnar.corpus.queries import Perturbation
from pixnar.evaluation.baselines.bi_encoder import Tuning, fine_tune
from pixnar.evaluation.baselines.entries import Entries
from pixnar.evaluation.latency import environment
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import Queries, read_queries
from pixnar.fusion.terms import Ngrams
from pixnar.fusion.vectors import DocidVectors
from pixnar.model.build import Docids, build_model, calibrate
from pixnar.model.encoder import MINILM, Encoder
from pixnar.model.features import FeatureCache
from pixnar.model.nar import MlpSlots, Nar, scorer_of
from pixnar.model.solve import SolveOptions
from pixnar.pipeline.context import x_of
from pixnar.pipeline.model_stage import tune_encoder
from pixnar.pipeline.run import default_cache
from pixnar.pipeline.shortlist import make_shortlist
from pixnar.recipe import Recipe, ShortlistSettings
from pixnar.scoring import COMPOSED_RULE, Priors, ScoreRule
from pixnar.search.ranker import PreparedQuery, Ranker
from pixnar.table import DocidTable, build_table
from pixnar.train.data import TrainingData
from pixnar.train.loop import train
from pixnar.vocab import Vocabulary

NEVER = 1 << 30
LABELS = {
    "ranked": "+ ranked",
    "pieces": "+ hierarchical",
    "mined": "+ negatives mined again",
    "passages": "+ passages of the text",
    "slots": "+ slots beside it: the default",
    "dense-teacher": "  distilled, dense teacher",
    "hybrid-teacher": "  distilled, hybrid teacher",
    "live": "  encoder fine-tuned",
    "contrast": "contrast first, then the default",
    "contrast-teacher": "  contrast, distilled, dense teacher",
}
_NO_SLOTS: dict[str, Any] = {"l1": 0.0, "l2": 0.0, "l3": 0.0}
CHANGES: dict[str, dict[str, Any]] = {
    "ranked": _NO_SLOTS | {"mine_every": NEVER, "pieces": False, "passages": 0},
    "pieces": _NO_SLOTS | {"mine_every": NEVER, "passages": 0},
    "mined": _NO_SLOTS | {"passages": 0},
    "passages": _NO_SLOTS,
    "slots": {},
    "dense-teacher": {"teacher": 0.3, "taught_by": "dense"},
    "hybrid-teacher": {"teacher": 0.3, "taught_by": "hybrid"},
    "live": {"live": True},
}
ROWS = ("start", *CHANGES, "lists", "contrast", "contrast-teacher", "copy")
COPIES = (0.0, 0.02, 0.05, 0.1, 0.2)
Figures = dict[str, float]


@dataclass
class _Bench:
    """One corpus, read and encoded once."""

    source: Corpus
    data: TrainingData  # with passages of the text
    plain: TrainingData  # without
    table: DocidTable
    features: FeatureCache
    dev: Queries
    asked: Mapping[str, Sequence[str]]  # the dev queries as they are and with a typo …
    vectors: Mapping[str, Any]  # … and their vectors
    slots: int
    priors: Priors
    folder: Path
    steps: int
    live_steps: int
    tuned: float = 0.0  # seconds that the encoder was fine-tuned before everything else
    curves: bool = True  # also measure while a model is trained

    def encoded(self, features: FeatureCache) -> _Bench:
        """The same corpus with the vectors of an encoder."""
        docids = features.vectors(self.data.docids)
        data, plain = (
            replace(some, vectors=np.vstack([docids, features.vectors(some.queries)]))
            for some in (self.data, self.plain)
        )
        vectors = {form: features.vectors(texts).astype(np.float32) for form, texts in self.asked.items()}
        return replace(self, features=features, data=data, plain=plain, vectors=vectors)

    def model(self, head: str, *, pieces: bool = False, seed: int = 0) -> Nar:
        """An untrained model."""
        assert self.data.vectors is not None
        vectors = self.data.vectors[: len(self.data.docids)]
        solved = Docids(tokens=self.data.cut_tokens(self.slots), vectors=vectors, pieces=pieces, options=SolveOptions())
        docids = solved if head == "solved" else None
        model = build_model(
            self.data.vocabulary, self.features, self.priors, slots=self.slots, head=head, seed=seed, docids=docids
        )
        assert isinstance(model.slots, MlpSlots)
        model.slots.center_on(torch.from_numpy(vectors[:: max(1, len(vectors) // 4096)].astype(np.float32)))
        return model

    def trained(
        self, seed: int, *, pieces: bool = True, live: bool = False, passages: int = 1, **changes: Any
    ) -> tuple[Nar, list[Figures]]:
        """A model after its last step, and its figures while it was trained."""
        model = self.model("solved", pieces=pieces, seed=seed)
        data = self.data if passages else self.plain
        steps = self.steps + (self.live_steps if live else 0)
        options = replace(
            Recipe().train,
            steps=steps,
            seed=seed,
            patience=0,
            fine_tune=self.live_steps / steps if live else 0.0,
            evaluate_every=max(1, steps // 5),
            **changes,
        )
        curve: list[Figures] = []
        looks = 0

        def evaluate(current: Nar) -> float:
            nonlocal looks
            looks += 1
            if not self.curves:
                return float(looks)
            seconds = sum(row["seconds"] for row in curve)
            now = self.figures(current, COMPOSED_RULE, live=live)
            at = self.tuned + time.monotonic() - began - seconds
            curve.append(now | {"at": at, "seconds": now.pop("took")})
            return float(looks)  # the last one is kept, whatever it is

        with tempfile.TemporaryDirectory(dir=self.folder) as home:
            began = time.monotonic()
            train(model, data, options, COMPOSED_RULE, self.priors, folder=Path(home), evaluate=evaluate)
        return model.eval(), curve

    def ranker(self, model: Nar, rule: ScoreRule) -> Ranker:
        """Searches by docids alone."""
        scorer = scorer_of(model, self.priors, rule)
        return Ranker(self.table, scorer, Ngrams(self.data.vocabulary))

    @property
    def pooled(self) -> Any:
        """The encoder's vectors of the dev queries."""
        return self.vectors[""]

    def queries(self, model: Nar, ranker: Ranker, live: bool = False, form: str = "") -> list[PreparedQuery]:
        """The dev queries, as they are or with a typo."""
        texts, pooled = self.asked[form], self.vectors[form]
        return ranker.queries(texts, x_of(model.eval(), texts, None if live else pooled), pooled)

    def ranked(self, ranker: Ranker, queries: Sequence[PreparedQuery]) -> list[list[str]]:
        """The best documents of each query."""
        return ranker.spread(lambda s: [hit.doc_id for hit in ranker.decode(s, 100)], ranker.slot_scores(queries))

    def dense(self) -> Figures:
        """MRR@10 and R@100 of each document's best docid vector."""
        data = self.data
        assert data.vectors is not None
        vectors = data.vectors[: len(data.docids)]
        dense = DocidVectors.build(vectors, data.pair_docid, data.pair_document, len(data.doc_ids))
        found, _ = dense.search(self.pooled, 100)
        return self.measured([[data.doc_ids[i] for i in row] for row in found])

    def figures(self, model: Nar, rule: ScoreRule, *, live: bool = False, form: str = "") -> Figures:
        """MRR@10 and R@100 by docids alone."""
        began = time.monotonic()
        ranker = self.ranker(model, rule)
        found = self.ranked(ranker, self.queries(model, ranker, live, form))
        return self.measured(found) | {"took": time.monotonic() - began}

    def measured(self, found: Sequence[Sequence[str]]) -> Figures:
        """MRR@10 and R@100 in percent."""
        shares = [len(set(hits) & wanted) / len(wanted) for hits, wanted in zip(found, self.dev.relevant, strict=True)]
        return {"MRR@10": 100 * mrr_at(found, self.dev.relevant, 10), "R@100": 100 * float(np.mean(shares))}

    def copied(self, model: Nar, live: bool) -> Figures:
        """With the copy term, whose weight is chosen on the other half of the queries."""
        runs = {}
        for copy in COPIES:
            ranker = self.ranker(model, COMPOSED_RULE.with_(copy=copy))
            runs[copy] = self.ranked(ranker, self.queries(model, ranker, live))
        halves = [np.arange(len(self.dev)) % 2 == side for side in (0, 1)]
        found: list[list[str]] = [[] for _ in self.dev.texts]
        for own, other in (halves, halves[::-1]):
            places = np.flatnonzero(other)
            wanted = [self.dev.relevant[i] for i in places]
            best = max(COPIES, key=lambda copy: mrr_at([runs[copy][i] for i in places], wanted, 10))
            for i in np.flatnonzero(own):
                found[i] = runs[best][i]
        return self.measured(found)


def _bench(
    source: Corpus, queries: int, steps: int, live_steps: int, typos: float | None, cache: Path, folder: Path
) -> _Bench:
    vocabulary = Vocabulary.build((row.docid for row in source.docids()), size=131072)
    table = build_table(source, vocabulary, folder / "table", spellings=False)
    features = FeatureCache(Encoder.load(MINILM), cache / "features", precision="int8")
    default = Recipe().train
    plain = TrainingData.read(source, vocabulary)
    misspelt_docids = default.typos if typos is None else typos
    data = TrainingData.read(source, vocabulary, passages=default.passages, typos=misspelt_docids)
    dev = read_queries(source, "dev", queries)
    slots = data.default_slots()
    priors = Priors.count(data.token_counts()[:-1], data.tokens.lengths, slots)
    one = Perturbation(typos=1)
    misspelt = [one.apply(text, query) for query, text in zip(dev.ids, dev.texts, strict=True)]
    bench = _Bench(
        source,
        data,
        plain,
        table,
        features,
        dev,
        {"": dev.texts, "typo": misspelt},
        {},
        slots,
        priors,
        folder,
        steps,
        live_steps,
    )
    return bench.encoded(features)


def _rows(bench: _Bench, seed: int, rows: Collection[str], note: Callable[..., None]) -> None:
    data = bench.data
    if seed == 0 and "start" in rows:
        note("dense, zero-shot", bench.dense())
        note("phrases read alone", bench.figures(bench.model("encoder"), COMPOSED_RULE))
        note("solved", bench.figures(bench.model("solved"), COMPOSED_RULE))
    for row, changes in CHANGES.items():
        no_text = row == "passages" and len(data.queries) == len(bench.plain.queries)
        if row not in rows or no_text or (row == "live" and not bench.live_steps):
            continue
        live = row == "live"
        model, curve = bench.trained(seed, **changes)
        note(LABELS[row], bench.figures(model, COMPOSED_RULE, live=live), curve)
        if row == "slots":
            note("  a typo in every query", bench.figures(model, COMPOSED_RULE, form="typo"))
            if seed == 0 and "lists" in rows:
                _slots(bench, model, note)
            if "copy" in rows:
                note("  with copy", bench.copied(model, live))


def _contrast(bench: _Bench, seed: int, steps: int, rows: Collection[str], note: Callable[..., None]) -> None:
    """The default after its encoder was fine-tuned by contrast."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        tuned = Path(folder) / "encoder"
        tune_encoder(Encoder.load(MINILM), bench.data, steps, tuned, seed=seed)
        bench = replace(bench, tuned=time.monotonic() - began)
        bench = bench.encoded(FeatureCache(Encoder.load(str(tuned)), None, precision="int8"))
    note("contrast: dense", bench.dense())
    note("contrast: solved", bench.figures(bench.model("solved", pieces=True, seed=seed), COMPOSED_RULE))
    model, curve = bench.trained(seed)
    note(LABELS["contrast"], bench.figures(model, COMPOSED_RULE), curve)
    note("  contrast, a typo in every query", bench.figures(model, COMPOSED_RULE, form="typo"))
    if "copy" in rows:
        note("  contrast, with copy", bench.copied(model, live=False))
    if "contrast-teacher" in rows:
        model, curve = bench.trained(seed, teacher=0.3, taught_by="dense")
        note(LABELS["contrast-teacher"], bench.figures(model, COMPOSED_RULE), curve)


def _slots(bench: _Bench, model: Nar, note: Callable[..., None]) -> None:
    """What x_t adds to x_0, how different the slots are, how calibrated, and what a shortlist costs."""
    for order in ("slots", "any"):
        rule = COMPOSED_RULE.with_(order=order)
        note(f"  of these: order {order} (x_1 … x_s)", bench.figures(model, rule))
    left = calibrate(model, x_of(model, bench.dev.texts[:256], bench.pooled[:256]))
    raw = float(np.abs(left + model.log_z.numpy())[:, 1:].mean())
    note("  of these: |log Z|", {"raw": raw, "calibrated": float(np.abs(left[:, 1:]).mean())})
    x = x_of(model, bench.dev.texts[:256], bench.pooled[:256])
    used = max(2, round(float(bench.data.tokens.lengths.mean())))
    best = (torch.from_numpy(x[:, 1 : used + 1]) @ model.head.rows.detach()[:-1].t()).argmax(-1).numpy()
    distinct = float(np.mean([len(set(row)) / used for row in best]))
    note("  of these: slots", {"used": used, "share of distinct best tokens": distinct})
    shortlist = make_shortlist(model, bench.data, ShortlistSettings(), COMPOSED_RULE)
    ranker, size = bench.ranker(model, COMPOSED_RULE), len(bench.data.vocabulary)
    queries = bench.queries(model, ranker)
    ranker.shortlist = shortlist
    listed = [query._replace(tokens=shortlist.tokens(query.x[0], None, size)) for query in queries]  # no own n-grams
    scored = float(np.mean([len(query.tokens) for query in listed if query.tokens is not None]))
    shares = {"% of V": 100 * scored / size, "% of V with centres": 100 * (scored + len(shortlist.c)) / size}
    note("  of these: shortlist", bench.measured(bench.ranked(ranker, listed)) | shares)


def _tuned_dense(bench: _Bench, minutes: float, seed: int) -> Figures:
    """Fine-tuned dense retrieval over the same docids; its best weights are chosen on the dev queries themselves."""
    encoder = Encoder.load(MINILM)
    entries, texts = Entries.read(bench.source, "docids")
    tuning = Tuning(minutes=minutes, seed=seed)
    fine_tune(encoder, bench.data, entries, texts, bench.dev, tuning, folder=bench.folder / "dense")
    return bench.encoded(FeatureCache(encoder, None, precision="int8")).dense()


def main(
    corpora: list[str],
    steps: Annotated[int, typer.Option(help="Steps of training with a frozen encoder.")] = 1200,
    live_steps: Annotated[int, typer.Option(help="Further steps that fine-tune the encoder; 0: no such row.")] = 0,
    seeds: Annotated[int, typer.Option(help="Runs with other random numbers.")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of these seeds.")] = 0,
    rows: Annotated[
        str, typer.Option(help="Rows to measure, separated by commas; see the top of the file.")
    ] = ",".join(ROWS),
    contrast: Annotated[int, typer.Option(help="Steps of 64 pairs by contrast; 0: no such row.")] = 0,
    queries: Annotated[int, typer.Option(help="Dev queries.")] = 1000,
    typos: Annotated[float | None, typer.Option(help="Share of docids that also train with a typo.")] = None,
    dense_minutes: Annotated[float, typer.Option(help="Minutes of fine-tuned dense retrieval; 0: no such row.")] = 0.0,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 1,
    cache: Annotated[Path | None, typer.Option(help="Where vectors of texts are kept.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw dev MRR@10 against minutes of training here (PNG).")] = None,
) -> None:
    """Measure every step on each corpus; figures are written after every row."""
    torch.set_num_threads(threads)
    wanted = [row.strip() for row in rows.split(",")]
    if unknown := set(wanted) - set(ROWS):
        raise typer.BadParameter(f"there is no row {min(unknown)!r}: the rows are {', '.join(ROWS)}")
    console = Console()
    results: dict[str, Any] = {"environment": environment(), "steps": steps, "contrast": contrast, "queries": queries}
    results["corpora"] = {}
    results["dense_minutes"] = dense_minutes
    for corpus in corpora:
        name = Path(corpus).name
        found: dict[str, list[Figures]] = {}
        curves: dict[str, list[list[Figures]]] = {}
        results["corpora"][name] = {"rows": found, "curves": curves}

        def note(
            label: str,
            figures: Figures,
            curve: list[Figures] | None = None,
            name: str = name,
            found: dict[str, list[Figures]] = found,
            curves: dict[str, list[list[Figures]]] = curves,
        ) -> None:
            kept = {key: round(value, 3) for key, value in figures.items() if key != "took"}
            found.setdefault(label, []).append(kept)
            if curve:
                curves.setdefault(label, []).append(curve)
            seconds = f"  {curve[-1]['at']:.0f} s" if curve else ""
            console.print(f"{name:>14}  {label:<34} {kept}{seconds}", highlight=False)
            if json_file:
                with atomic_write(json_file) as file:
                    file.write(json.dumps(results, indent=1).encode())

        source = open_corpus(corpus)
        with tempfile.TemporaryDirectory() as folder:
            bench = _bench(source, queries, steps, live_steps, typos, cache or default_cache(), Path(folder))
            results["corpora"][name]["passages"] = len(bench.data.queries) - len(bench.plain.queries)
            for seed in range(first_seed, first_seed + seeds):
                bench.curves = seed == 0  # on large corpora they take a third of the time
                _rows(bench, seed, wanted, note)
                if contrast and "contrast" in wanted:
                    _contrast(bench, seed, contrast, wanted, note)
                if dense_minutes and seed == 0:
                    note("dense, fine-tuned", _tuned_dense(bench, dense_minutes, seed))
        console.print(_table(name, found))
    if plot:
        draw(results, plot)


def draw(results: dict[str, Any], path: Path) -> None:
    """Dev MRR@10 against minutes of training: a panel for each corpus, and a dot for fine-tuned dense retrieval."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * len(results["corpora"]), 3.8), layout="constrained")
    axes = figure.subplots(1, len(results["corpora"]), squeeze=False)[0]
    colours = {label: f"C{number}" for number, label in enumerate(LABELS.values())}
    known: dict[str, Any] = {}  # what the legend of all panels shows
    for axis, (name, found) in zip(axes, results["corpora"].items(), strict=True):
        for label, runs in found["curves"].items():
            for run in runs:
                points = [(row["at"] / 60, row["MRR@10"]) for row in run]
                known[label.strip()] = axis.plot(
                    *zip(*points, strict=True), color=colours.get(label, "gray"), marker=".", lw=1.2
                )[0]
        for label, marker, minutes in (("zero-shot", "_", 0.0), ("fine-tuned", "*", results.get("dense_minutes", 0))):
            if rows := found["rows"].get(f"dense, {label}"):
                value = rows[0]["MRR@10"]
                known[f"dense, {label}"] = axis.plot(minutes, value, marker, color="black", ms=11, ls="")[0]
        axis.set(title=name, xlabel="minutes of training, one core", ylabel="dev MRR@10")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(known.values(), known, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    with atomic_write(path) as file:
        figure.savefig(file, dpi=150, format="png")


def _table(name: str, rows: dict[str, list[Figures]]) -> Table:
    table = Table("step", "MRR@10", "R@100", title=name)
    for label, runs in rows.items():
        if "MRR@10" in runs[0]:
            means = [np.mean([run[key] for run in runs]) for key in ("MRR@10", "R@100")]
            spread = np.std([run["MRR@10"] for run in runs])
            table.add_row(label, f"{means[0]:.1f} ± {spread:.1f}", f"{means[1]:.1f}")
    return table


if __name__ == "__main__":
    typer.run(main)
