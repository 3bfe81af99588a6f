"""What each element of the ranking is worth: the paper's recipe, then one element after the other, on dev.

Behind ``pixnar bench ranking``. Per corpus, vectors, docid table and dev queries are shared by all rows; rows that only
change the scoring reuse the same weights. Every training run takes the same number of steps,
so that a busy machine does not decide. In the rows of the model and of its fusions, settings and weights are
cross-validated: chosen on one half of the dev queries, measured on the other. In the rows of the baselines (BM25,
dense, hybrid) they are chosen on up to 1,000 dev queries, those that are measured among them: these figures are in
sample, in the baselines' favour. The step that training keeps is the best on dev, for every trained row alike.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pixnar.base.errors import MissingPartError
from pixnar.cli.common import Cache, JsonFile, write_json
from pixnar.corpus import Corpus, open_corpus
from pixnar.evaluation.baselines import build_bm25, build_dense, build_hybrid, describe, open_retriever
from pixnar.evaluation.latency import environment
from pixnar.evaluation.measures import reciprocal_ranks, summary
from pixnar.evaluation.queries import Queries, read_queries
from pixnar.evaluation.significance import paired_difference
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL
from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.terms import Ngrams
from pixnar.fusion.vectors import DocidVectors
from pixnar.model.build import build_model, calibrate
from pixnar.model.encoder import MINILM, Encoder, place_of
from pixnar.model.features import FeatureCache
from pixnar.model.nar import Nar, scorer_of
from pixnar.pipeline.context import x_of
from pixnar.pipeline.run import default_cache
from pixnar.pipeline.shortlist import make_shortlist
from pixnar.pipeline.tune import CrossValidation, RuleTuner, docid_mrr, folds
from pixnar.recipe import Recipe, ShortlistSettings, Train
from pixnar.scoring import PAPER_RULE, Priors, ScoreRule
from pixnar.search.ranker import PreparedQuery, Ranker
from pixnar.table import build_table
from pixnar.train.data import TrainingData
from pixnar.train.loop import train
from pixnar.vocab import TargetVocabulary, TokenizerVocabulary, Vocabulary

LIKELIHOOD = PAPER_RULE.with_(normalize=True)
"""The paper's score: Σ log P of each slot's token and of the end."""

PROBABILITY = ScoreRule(score="probability")
NO_COPY = PROBABILITY.with_(copy=0.0)

_TUNED = 200  # dev queries on which settings are chosen
_DEPTH = 150
_BEST = "best form on dev"
HYBRID = "hybrid of dense and BM25"
Ranked = list[list[str]]
Rules = list[ScoreRule]
"""One for each half of the dev queries, chosen on the other half."""


@dataclass
class _Bench:
    """One corpus with one vocabulary."""

    name: str
    data: TrainingData
    dev: Queries
    features: FeatureCache
    ranker: Callable[[Nar, ScoreRule], Ranker]
    slots: int
    priors: Priors
    options: Train
    pooled: Any
    folder: Path

    def trained(
        self, label: str, rule: ScoreRule, *, head: str = "encoder", bias: bool = True, **changes: Any
    ) -> tuple[Nar, dict[str, Any]]:
        """A model after its steps, the best by `rule` on dev; the facts of its training."""
        model = build_model(self.data.vocabulary, self.features, self.priors, slots=self.slots, head=head, bias=bias)
        options = replace(self.options, **changes)
        started = time.monotonic()
        some = self.dev.first(_TUNED)

        def evaluate(current: Nar) -> float:
            ranker = self.ranker(current, rule)
            return docid_mrr(ranker, self.queries(current, ranker)[: len(some)], some.relevant)

        home = self.folder / label
        result = train(model, self.data, options, rule, self.priors, folder=home, evaluate=evaluate)
        shutil.rmtree(home)
        left = calibrate(model, x_of(model, self.dev.texts[:256], self.pooled[:256]))
        facts = {
            "steps": result.steps,
            "kept": result.best_step,
            "softmax": result.softmax,
            "seconds": round(time.monotonic() - started, 1),
            "log_z_abs": round(float(np.abs(left + model.log_z.numpy())[:, 1:].mean()), 3),
            "log_z_abs_calibrated": round(float(np.abs(left[:, 1:]).mean()), 3),
        }
        return model.eval(), facts

    def queries(self, model: Nar, ranker: Ranker) -> list[PreparedQuery]:
        return ranker.queries(self.dev.texts, x_of(model, self.dev.texts, self.pooled), self.pooled)

    def by_docids(self, model: Nar, rules: Rules, shortlist: Any = None) -> Ranked:
        found: Ranked = [[] for _ in range(len(self.dev))]
        for half, rule in zip(folds(len(self.dev)), rules, strict=True):
            ranker = self.ranker(model, rule)
            ranker.shortlist = shortlist
            queries = self.queries(model, ranker)
            numbers = half.measured.tolist()
            for i, row in zip(numbers, _decoded(ranker, [queries[i] for i in numbers]), strict=True):
                found[i] = row
        return found

    def tuned(self, model: Nar, starts: Rules, settings: Sequence[str], orders: bool = False) -> Rules:
        """The starts with some of their settings chosen on dev, each on the other half."""
        ranker = self.ranker(model, starts[0])
        some = self.dev.first(_TUNED)
        tuner = RuleTuner(ranker, self.queries(model, ranker)[: len(some)], some)
        return [
            tuner.best(start, half.chosen_on[half.chosen_on < len(some)], settings=settings, orders=orders)
            for half, start in zip(folds(len(self.dev)), starts, strict=True)
        ]


def run(
    corpora: Annotated[list[str], typer.Argument(help="Corpus folders with a dev split.")],
    steps: Annotated[int, typer.Option(help="Steps of every training run.", min=1)] = 500,
    queries: Annotated[int, typer.Option(help="Dev queries: a sample of so many.", min=1)] = 1000,
    size: Annotated[int, typer.Option(help="Most tokens of the phrase vocabulary.", min=512)] = 131072,
    seed: Annotated[int, typer.Option(help="Of the training runs.")] = 0,
    cache: Cache = None,
    wordpiece: Annotated[bool, typer.Option(help="Also word-piece targets at equal steps.")] = True,
    json_file: JsonFile = None,
) -> dict[str, Any]:
    """Measure what each element of the ranking is worth, beside BM25 and dense retrieval.

    The first row is the paper's recipe, and every other adds one element. What is done is written after every corpus.

    [bold]pixnar bench ranking CORPUS --steps 500 --json ranking.json[/bold]
    """
    cache = cache or default_cache()
    console = Console()
    results: dict[str, Any] = {"environment": environment(), "steps": steps, "queries": queries, "corpora": {}}
    if json_file is not None and json_file.exists():
        results["corpora"] = json.loads(json_file.read_text())["corpora"]
    for corpus in corpora:
        name = Path(corpus).name if Path(corpus).name != "corpus" else "demo"
        with tempfile.TemporaryDirectory() as folder:
            rows, facts = _corpus(corpus, name, steps, queries, cache, size, seed, Path(folder), wordpiece, console)
        results["corpora"][name] = {"steps": steps, "queries": facts.pop("queries"), "facts": facts, "rows": rows}
        write_json(json_file, results)
        console.print(_table(name, rows, facts["ranks by"]))
    return results


def _corpus(
    corpus: str,
    name: str,
    steps: int,
    n_queries: int,
    cache: Path | None,
    size: int,
    seed: int,
    folder: Path,
    wordpiece: bool,
    console: Console,
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    source = open_corpus(corpus)
    encoder = Encoder.load(MINILM)
    features = FeatureCache(encoder, cache / "features" if cache else None)
    dev = read_queries(source, "dev").first(n_queries)
    texts = [row.docid for row in source.docids()]
    rows: dict[str, dict[str, float]] = {}
    runs: dict[str, Ranked] = {}
    facts: dict[str, Any] = {"queries": len(dev), "ranks by": {}}

    def note(label: str, found: Ranked, ranks_by: str = "docids") -> None:
        runs[label] = found
        facts["ranks by"][label] = ranks_by
        rows[label] = summary(dict(zip(dev.ids, found, strict=True)), dev.qrels)
        figures = "  ".join(f"{key} {100 * value:.1f}" for key, value in rows[label].items())
        console.print(f"{name:>14}  {label:<46} {figures}", highlight=False)

    bench = _bench(name, corpus, Vocabulary.build(texts, size=size), dev, features, steps, seed, folder / "phrase")
    facts |= {"tokens": len(bench.data.vocabulary), "slots": bench.slots}
    documents = {document.doc_id: f"{document.title} {document.text}" for document in source.documents()}
    _baselines(bench, source, cache, note)
    model, facts["paper-like training"] = bench.trained("p", LIKELIHOOD, head="random", bias=False, ranking=0.0)
    plain = [LIKELIHOOD] * 2
    note("paper-like: random phrase vectors, no bias, log P", bench.by_docids(model, plain))
    model, facts["three losses"] = bench.trained("a", NO_COPY, ranking=0.0)
    note("+ phrase vectors from the encoder, bias", bench.by_docids(model, plain))
    rules = bench.tuned(model, _changed(plain, prior_weight=0.75), ["prior_weight"])
    note("+ prior correction", bench.by_docids(model, rules))
    rules = bench.tuned(model, _changed(rules, floor="zero", ends=False), ["prior_weight", "length_norm"])
    note("+ floor for what is not expected, length", bench.by_docids(model, rules))
    rules = bench.tuned(model, _changed(rules, order="bag"), ["order", "prior_weight"], orders=True)
    note("+ order-free matching", bench.by_docids(model, rules))
    rules = bench.tuned(model, _changed(rules, aggregate="logsumexp"), ["aggregate"])
    note("+ documents by log-sum-exp", bench.by_docids(model, rules))
    no_copy = rules
    rules = bench.tuned(model, _changed(rules, copy=0.3), ["copy", "prior_weight", "length_norm", "aggregate"])
    note("+ copy term", bench.by_docids(model, rules))
    model, facts["with ranking loss"] = bench.trained("b", PROBABILITY)
    rules = bench.tuned(model, rules, ["prior_weight", "copy", "length_norm", "aggregate"])
    note("+ ranking loss", bench.by_docids(model, rules))
    facts["rules"] = [rule.to_dict() for rule in rules]
    rule = rules[0]  # lists and the lexical index do not depend on its settings
    shortlist = make_shortlist(model, bench.data, ShortlistSettings(minutes=1.0), rule, seed)
    sizes = [len(q.tokens) for q in _with(bench.ranker(model, rule), shortlist, bench, model) if q.tokens is not None]
    facts["shortlist"] = {
        "m": len(shortlist.c),
        "r": round(shortlist.mean_length),
        "k": shortlist.k,
        "share": float(np.mean(sizes)) / len(bench.data.vocabulary),
    }
    note("the same on the learned shortlist", bench.by_docids(model, rules, shortlist))
    _lexical_and_fusion(bench, model, rules, documents, note)
    if wordpiece:
        _wordpiece(corpus, bench, no_copy, steps, seed, folder, texts, note, facts)
    for label in ("+ ranking loss", "with fusion"):
        pair = [reciprocal_ranks(runs[one], dev.relevant, 10) for one in (label, HYBRID)]
        facts[f"p, {label} against {HYBRID}"] = paired_difference(*pair).p_value
    return rows, facts


def _decoded(ranker: Ranker, queries: Sequence[PreparedQuery]) -> Ranked:
    return ranker.spread(lambda scores: [hit.doc_id for hit in ranker.decode(scores, 100)], ranker.slot_scores(queries))


def _changed(rules: Rules, **changes: Any) -> Rules:
    return [rule.with_(**changes) for rule in rules]


def _with(ranker: Ranker, shortlist: Any, bench: _Bench, model: Nar) -> list[PreparedQuery]:
    ranker.shortlist = shortlist
    return bench.queries(model, ranker)


def _bench(
    name: str,
    corpus: str,
    vocabulary: TargetVocabulary,
    dev: Queries,
    features: FeatureCache,
    steps: int,
    seed: int,
    folder: Path,
) -> _Bench:
    folder.mkdir(parents=True)
    source = open_corpus(corpus)
    table = build_table(source, vocabulary, folder / "table", spellings=False)
    data = TrainingData.read(source, vocabulary)
    data.vectors = features.vectors(data.inputs)
    slots = data.default_slots()
    priors = Priors.count(data.token_counts()[:-1], data.tokens.lengths, slots)
    ngrams = Ngrams(vocabulary)

    def ranker(model: Nar, rule: ScoreRule) -> Ranker:
        return Ranker(table, scorer_of(model, priors, rule), ngrams)

    options = replace(
        Recipe().train,
        minutes=0.0,
        steps=steps,
        seed=seed,
        patience=0,
        evaluate_every=max(1, steps // 3),
        softmax="sampled",
        head_learning_rate=1e-3,  # what the score probability was chosen with
        optimizer="rows",
    )
    pooled = features.vectors(dev.texts).astype(np.float32)
    return _Bench(name, data, dev, features, ranker, slots, priors, options, pooled, folder)


def _baselines(bench: _Bench, corpus: Corpus, cache: Path | None, note: Callable[[str, Ranked, str], None]) -> None:
    """What the baselines room builds, all settings chosen on the dev queries that are measured: in sample."""
    place = bench.folder / "baselines"
    made: dict[str, Path] = {}

    def build(label: str, make: Callable[..., Any], **options: Any) -> None:
        folder = place / f"{len(made)}"
        try:
            make(corpus, folder, **options)
        except MissingPartError:  # no text
            return
        made[label] = folder
        found = open_retriever(folder).search_batch(bench.dev.texts, 100)
        note(label, [[hit.id for hit in hits] for hits in found], describe(folder))

    for label, over in (("docids", "docids"), ("docids joined", "joined"), ("text + docids", "both"), (_BEST, "auto")):
        build(f"BM25, {label}", build_bm25, over=over)
    build("dense, docids", build_dense, cache=cache)
    build("dense, text + docids", build_dense, over="both", cache=cache)
    sides = {"dense": made.get("dense, text + docids", made["dense, docids"]), "bm25": made[f"BM25, {_BEST}"]}
    for label, fusion in ((HYBRID, "weights"), ("hybrid, rank fusion", "rrf")):
        build(label, build_hybrid, fusion=fusion, **sides)


def _lexical_and_fusion(
    bench: _Bench,
    model: Nar,
    rules: Rules,
    documents: dict[str, str],
    note: Callable[[str, Ranked, str], None],
) -> None:
    data = bench.data
    ranker = bench.ranker(model, rules[0])
    ranker.depth = _DEPTH
    docids = [(int(d), data.docids[i]) for i, d in zip(data.pair_docid, data.pair_document, strict=True)]
    own = [(i, documents[doc_id]) for i, doc_id in enumerate(data.doc_ids)]
    ranker.lexical = LexicalIndex.build(data.vocabulary, docids, len(data.doc_ids))
    queries = bench.queries(model, ranker)
    crossed = CrossValidation(ranker, queries, bench.dev, rules, {})
    sources = [DOCIDS, LEXICAL, EXPANSION]
    note("+ lexical index of all docids", crossed.run(sources), " + ".join(sources))
    ranker.lexical = LexicalIndex.build(data.vocabulary, docids + own, len(data.doc_ids))
    if data.vectors is not None:
        vectors = data.vectors[: len(data.docids)]
        ranker.vectors = DocidVectors.build(vectors, data.pair_docid, data.pair_document, len(data.doc_ids))
    crossed = CrossValidation(ranker, queries, bench.dev, rules, {})
    for label, sources in (
        ("+ lexical index of the text", [DOCIDS, LEXICAL, EXPANSION]),
        ("with fusion", [DOCIDS, LEXICAL, EXPANSION, DENSE]),
    ):
        note(label, crossed.run(sources), " + ".join(sources))


def _wordpiece(
    corpus: str,
    phrase: _Bench,
    rules: Rules,
    steps: int,
    seed: int,
    folder: Path,
    texts: list[str],
    note: Callable[[str, Ranked], None],
    facts: dict[str, Any],
) -> None:
    vocabulary = TokenizerVocabulary.from_pretrained(place_of(MINILM), texts)
    bench = _bench(phrase.name, corpus, vocabulary, phrase.dev, phrase.features, steps, seed, folder / "wordpiece")
    model, facts["word-pieces"] = bench.trained("w", NO_COPY, ranking=0.0)
    ordered = bench.tuned(model, _changed([LIKELIHOOD] * 2, prior_weight=0.75), ["prior_weight"])
    note("word-pieces, prior correction, slot by slot", bench.by_docids(model, ordered))
    tuned = bench.tuned(model, rules, ["order", "prior_weight", "length_norm", "aggregate"], orders=True)
    note("word-pieces, no copy, equal steps", bench.by_docids(model, tuned))


def _table(name: str, rows: dict[str, dict[str, float]], ranks_by: dict[str, str]) -> Table:
    table = Table("row", *next(iter(rows.values())), "ranks by", title=name)
    for label, figures in rows.items():
        table.add_row(label, *(f"{100 * value:.1f}" for value in figures.values()), ranks_by[label])
    return table
