"""From a corpus to an index: vocabulary, docid table, model, training, shortlist, evidence, choices on dev."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import write_json
from pixnar.base.workdir import swap
from pixnar.corpus import Corpus, open_corpus
from pixnar.corpus.held_out import DEV, hold_out
from pixnar.docid_generation import DocidOptions, make_docids
from pixnar.evaluation.queries import Queries, read_queries
from pixnar.fusion.fuse import Fusion
from pixnar.fusion.ngrams import Ngrams
from pixnar.index.files import (
    DOCIDS,
    ENCODER,
    MODEL,
    PRIORS,
    SHORTLIST,
    TRAINING,
    write_priors,
)
from pixnar.index.manifest import SOURCES, write_manifest
from pixnar.model.build import Docids, build_model, calibrate
from pixnar.model.encoder import Encoder, check_encoder, place_of
from pixnar.model.features import FeatureCache, KnownVectors
from pixnar.model.nar import Nar, scorer_of
from pixnar.model.process_group import SINGLE, ProcessGroup
from pixnar.model.solve import SolveOptions
from pixnar.pipeline.contrast import tune_encoder
from pixnar.pipeline.cross import CrossValidation, folds
from pixnar.pipeline.estimate import Estimate, estimate
from pixnar.pipeline.export import ship
from pixnar.pipeline.folder import claim, forget
from pixnar.pipeline.parts import start_rule, x_of
from pixnar.pipeline.shortlist import cells_of_docids, examples, learn_vectors, list_tokens, make_shortlist
from pixnar.pipeline.sources import Sources, unused
from pixnar.pipeline.spelling import decide, write_lexicon
from pixnar.pipeline.tune import (
    COMPOSED_GRID,
    GRID,
    RuleTuner,
    docid_mrr,
    docid_ranks,
    fixed_fusion,
    gather,
    tune_fusion,
    with_rule,
)
from pixnar.pipeline.vectors import choose_precision
from pixnar.recipe import Recipe, Train, to_dict
from pixnar.recipe import ShortlistSettings as ShortlistWish
from pixnar.runtime import QueryEncoder
from pixnar.runtime.shortlist import Shortlist
from pixnar.scoring import Priors, ScoreRule
from pixnar.search import Decoder
from pixnar.search.ranker import BM25, DENSE, EXPANSION, OWN, TEXT, Query, Ranker
from pixnar.search.ranker import DOCIDS as DOCID_SCORE
from pixnar.table import DocidTable, build_table
from pixnar.train.data import TrainingData
from pixnar.train.log import plot
from pixnar.train.loop import Trained, pick_device, train
from pixnar.train.mapped_data import read_together
from pixnar.vocab import TargetVocabulary, TokenizerVocabulary, Vocabulary, load_vocabulary

Floats = NDArray[np.float32]

# Weights of the sources where there is no dev split. docs/LOG.md has measurements, but none of TEXT (vectors of text):
# its weight is a guess, that of DENSE.
_WITHOUT_DEV = {DOCID_SCORE: 0.25, OWN: 1.0, EXPANSION: 0.25, DENSE: 0.5, TEXT: 0.5, BM25: 0.5}
_LISTS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4)  # that a query may take, as shares of those that come to 5 % of V
_MOST_LISTED, _LIST_LOSS = 0.2, 0.01  # share of the vocabulary, and what may be lost of dev MRR@10
_UNJUDGED = 2  # as in _LISTS, where there is no dev split to ask
_CONTRAST_STEP = 2.0  # seconds
_STAND_INS = 100  # docids that stand in for queries where there are none


@dataclass
class Report:
    """What a fit measured: facts, and dev figures by name."""

    facts: dict[str, Any] = field(default_factory=dict)
    dev: dict[str, dict[str, float]] = field(default_factory=dict)


def fit(
    corpus: str | os.PathLike[str] | Corpus,
    output: str | os.PathLike[str],
    recipe: Recipe | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    keep_work: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    world: ProcessGroup = SINGLE,
) -> Report:
    """Build an index of a corpus. An interrupted fit goes on where it stopped when called again with the same recipe.

    `cache` is where vectors of texts are kept between runs. All processes of a `world` call this with the same
    arguments: they train together, the first one does the rest and tells.
    """
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    folder = Path(output)
    wanted = recipe or Recipe()
    claimed = claim(folder, source, wanted, overwrite=overwrite) if world.first else folder
    place = Path(world.tell(str(claimed)))
    if not world.first:
        progress, say = None, None
    where = Path(cache) if cache else default_cache()
    run = _Fit(source, place, wanted, where, threads, progress, say or (lambda _: None), world)
    try:
        report = run.all()
    except PixnarError:
        if world.first:
            forget(place)
        raise
    if world.first:
        if not keep_work:
            shutil.rmtree(place / "work", ignore_errors=True)
        swap(place, folder)
    world.wait()
    return report


def default_cache() -> Path:
    """Where vectors are kept: $PIXNAR_CACHE, or pixnar in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("PIXNAR_CACHE") or str(Path(home) / "pixnar"))


class _Fit:
    def __init__(
        self,
        corpus: Corpus,
        folder: Path,
        recipe: Recipe,
        cache: Path,
        threads: int,
        progress: Progress | None,
        say: Callable[[str], None],
        world: ProcessGroup,
    ) -> None:
        self.world = world
        self.corpus, self.folder, self.recipe, self.cache = corpus, folder, recipe, cache
        self.threads, self.progress, self.say = threads, progress, say
        self.work = folder / "work"
        self.report = Report()
        self.named = False  # whether the docids are made of the text

    def all(self) -> Report:
        if not (self._model_path() / "model.json").exists():
            check_encoder(self.recipe.model.encoder)
        self.hold_out()
        self.world.in_turn(self.names)
        vocabulary = self.world.in_turn(self.vocabulary)
        table = self.world.in_turn(lambda: self.table(vocabulary))
        path, wish = self.work / "inputs.pixnar", self.recipe.train
        passages, typos, world = wish.passages, wish.typos, self.world
        data = read_together(self.corpus, vocabulary, path, world, self.progress, passages=passages, typos=typos)
        slots = self.recipe.model.slots or data.default_slots()
        self._tell_cut(data, slots)
        priors = Priors.count(data.token_counts()[:-1], data.tokens.lengths, slots)
        dev = read_queries(self.corpus, "dev", self.recipe.fuse.dev_queries)
        model = self.model(data, table, priors, slots, dev)
        shortlist = self.shortlist(model, data)
        if not self.world.first:
            return self.report
        ranker, queries = self.ranker(model, data, table, priors, dev, shortlist)
        rule, fusions = self.choices(ranker, queries, dev)
        chosen, fusion = with_rule(ranker, rule), fusions["all"]
        chosen.fusion = Fusion.from_dict(fusion) if fusion else None
        chosen.drop_unweighted()
        if len(dev) and self.recipe.fuse.margin:
            for name in unused(fusions):
                (self.folder / name).unlink(missing_ok=True)
        self.report.facts["served"] = ship(model, chosen, dev, self.folder, self.recipe.serve, self.say, self.progress)
        self.spelling(model, chosen, dev)
        self._give_back(table)
        self._seal(rule, fusions, model, ranker.origin)
        return self.report

    def hold_out(self) -> None:
        """Make a dev split of some docids where the corpus has none."""
        most = self.recipe.fuse.hold_out
        if not most or DEV in self.corpus.splits() or not self.corpus.has_docids():
            return
        self.corpus = hold_out(self.corpus, most, self.recipe.train.seed, self.progress)
        if held := len(self.corpus.held_out):
            self.report.facts["held_out"] = held
            self.say(f"no dev split: {held:,} docids are held out as dev queries and added to the index at the end")

    def _give_back(self, table: DocidTable) -> None:
        """Add the docids that were held out; see `table` for a fit that is interrupted after this."""
        rows = self.corpus.held_out
        if rows:
            add = [(row.doc_id, table.encode(row.docid)) for row in rows]
            table.change(add=add, spellings=[row.docid for row in rows])

    def names(self) -> None:
        """Docids made of the text, once, where the corpus has none; the corpus itself is left as it is."""
        if self.corpus.has_docids():
            return
        path = self.work / "docids.jsonl"
        options = DocidOptions(**asdict(self.recipe.naming))
        if not path.exists():
            make_docids(self.corpus, path, options, threads=self.threads, progress=self.progress)
        self.corpus, self.named = self.corpus.with_docids(path), True
        sources = ", ".join(options.sources)
        self.say(
            f"docids: {self.corpus.name} has none, so they are made of its text: {sources}; see pixnar docids --help"
        )

    def vocabulary(self) -> TargetVocabulary:
        """Learned from the docids, once."""
        path, wish = self.work / "vocabulary", self.recipe.vocab
        if not path.exists():
            texts = (row.docid for row in self.corpus.docids(self.progress))
            if wish.kind == "phrase":
                made: TargetVocabulary = Vocabulary.build(
                    texts,
                    size=wish.size,
                    min_count=wish.min_count or None,
                    max_words=wish.max_words,
                    threads=self.threads,
                    progress=self.progress,
                )
            elif wish.kind == "wordpiece":
                made = TokenizerVocabulary.from_pretrained(place_of(self.recipe.model.encoder), texts)
            elif wish.kind == "bpe":
                made = TokenizerVocabulary.train_bpe(texts, wish.size, min_count=wish.min_count or 2)
            else:
                made = TokenizerVocabulary.train_unigram(texts, wish.size)
            made.save(path)
        vocabulary = load_vocabulary(path)
        self.report.facts |= {"vocabulary": len(vocabulary), "vocabulary_kind": vocabulary.kind}
        self.say(f"vocabulary: {len(vocabulary):,} tokens ({vocabulary.kind})")
        return vocabulary

    def table(self, vocabulary: TargetVocabulary) -> DocidTable:
        """The docid table, once."""
        path = self.folder / DOCIDS
        if not (path / "table.pixnar").exists():  # written last: a build that was killed begins again
            build_table(self.corpus, vocabulary, path, threads=self.threads, progress=self.progress)
        table = DocidTable.open(path)
        if any(table.changes):  # a fit that was killed after it gave back what was held out: those are queries again
            shutil.rmtree(path)
            build_table(self.corpus, vocabulary, path, threads=self.threads, progress=self.progress)
            table = DocidTable.open(path)
        self.report.facts |= {"documents": table.documents, "docids": table.snapshot().table.rows}
        self.say(f"docids: {table.snapshot().table.rows:,} that name {table.documents:,} documents")
        return table

    def model(self, data: TrainingData, table: DocidTable, priors: Priors, slots: int, dev: Queries) -> Nar:
        """Built, trained and calibrated, once."""
        path = self._model_path()
        known = self.work / "facts.json"
        if self.world.tell((path / "model.json").exists()):
            self.report.facts |= json.loads(known.read_bytes()) if known.exists() else {}
            self.features = self._features(self._encoder(path / "encoder"), data, dev)
            self._later_vectors(data)
            return self._whole(path)
        wish = self.recipe.model
        encoder = self._encoder(wish.encoder)
        self.say(f"this fit takes {self._estimate(encoder, data, dev)}; interrupted, the same command resumes it")
        if self.recipe.train.contrast:
            encoder = self._contrast(encoder, data)
        self.features = self._features(encoder, data, dev)
        options = self.recipe.train
        docids: KnownVectors | None = None
        if (wish.slot_design == "mlp" and options.fine_tune < 1) or options.negatives:
            self._input_vectors(data)
            if data.vectors is not None:
                docids = KnownVectors(data.docids, data.vectors)
        solved = None
        if wish.head == "solved":
            if data.vectors is None:
                self._input_vectors(data)
            assert data.vectors is not None
            solved = Docids(
                tokens=data.cut_tokens(slots),
                vectors=data.vectors[: len(data.docids)],
                pieces=self._with_pieces(),
                options=SolveOptions(ridge=wish.ridge, threads=self.threads),
                folder=self.work / "solve",
            )
        model = build_model(
            data.vocabulary,
            self.features,
            priors,
            slots=slots,
            design=wish.slot_design,
            head=wish.head,
            bias=wish.bias,
            hidden=wish.hidden,
            seed=self.recipe.train.seed,
            docids=solved,
            progress=self.progress,
            group=self.world,
            known=docids,
        )
        trained = self._train(model, data, table, priors, dev)
        model.eval()
        if self.world.size == 1:
            model.cpu()
        if model.design == "mask" or self.recipe.train.fine_tune:  # the encoder is another now
            self.features = self._features(model.encoder, data, dev)
            data.vectors = None
        self._later_vectors(data)
        self._calibrate(model, data, dev)
        self.report.facts |= {"steps": trained.steps, "best_step": trained.best_step, "softmax": trained.softmax}
        if self.world.first:
            write_json(known, self.report.facts)
        model.save_pretrained(path)
        return model if self.world.size == 1 else self._whole(path)

    def _contrast(self, encoder: Encoder, data: TrainingData) -> Encoder:
        """The encoder after fine-tuning by contrast, which the first process does for all."""
        folder, options = self.work / "contrast", self.recipe.train
        if self.world.first:
            tune_encoder(
                encoder,
                self.corpus,
                data,
                options.contrast,
                folder,
                seed=options.seed,
                device=options.device,
                progress=self.progress,
                say=self.say,
            )
            self.say(f"encoder: fine-tuned by contrast, {options.contrast:,} steps")
        self.world.wait()
        return self._encoder(folder)

    def _estimate(self, encoder: Encoder, data: TrainingData, dev: Queries) -> Estimate:
        """How long the stages from here on take."""
        body: Any = encoder.body
        weights = sum(p.numel() for p in body.parameters()) - sum(
            p.numel() for p in body.get_input_embeddings().parameters()
        )
        phrases = 0 if self.recipe.model.head == "solved" and self._with_pieces() else len(data.vocabulary)
        pieces_of_text = self.recipe.fuse.text_vectors * len(data.doc_ids)  # at most
        return estimate(
            self.recipe,
            docids=len(data.docids),
            tokens=len(data.tokens.ids),
            texts=len(data.docids) + len(data.queries) + len(dev) + phrases + pieces_of_text,
            weights=float(weights),
            width=encoder.width,
            minutes=self._train_options(data).minutes + self.recipe.train.contrast * _CONTRAST_STEP / 60,
            dev=len(dev),
        )

    def _with_pieces(self) -> bool:
        """Whether phrases share rows of word pieces: only training by the composed score knows of them."""
        return self.recipe.model.pieces and self.recipe.scoring.score == "composed"

    def _model_path(self) -> Path:
        return (self.folder if self.recipe.serve.keep_model else self.work) / MODEL

    def _whole(self, path: Path) -> Nar:
        """The trained model in the memory of the machine, not of a device; only the first process needs all of it."""
        return Nar.from_pretrained(path, SINGLE if self.world.first else self.world)

    def _encoder(self, name: str | Path) -> Encoder:
        encoder = Encoder.load(name, max_pieces=self.recipe.model.max_pieces)
        if self.world.size > 1:  # each encodes its share of the texts
            encoder.to(self.world.device(pick_device(self.recipe.train.device)))
        return encoder

    def _features(self, encoder: Encoder, data: TrainingData, dev: Queries) -> FeatureCache:
        """Vectors of texts; their precision is chosen once, with the encoder as it comes."""
        folder, note = self.cache / "features", self.work / "vectors.json"
        if self.world.first and "vectors" not in self.report.facts:
            if note.exists():
                chosen = json.loads(note.read_bytes())
            else:
                wish, phrases = self.recipe.model.vectors, len(data.vocabulary)
                chosen = choose_precision(encoder, folder, wish, data, dev, phrases, self.say, self.threads)
                write_json(note, chosen)
            self.report.facts["vectors"] = chosen
        precision = self.world.tell(self.report.facts["vectors"]["precision"] if self.world.first else "")
        return FeatureCache(encoder, folder, precision=precision, threads=self.threads)

    def _later_vectors(self, data: TrainingData) -> None:
        """What the shortlist and dense fusion need, by the encoder as it is after training."""
        listed = self.recipe.shortlist.learn and self.recipe.model.slot_design == "mlp"
        if data.vectors is None and (listed or self.recipe.fuse.dense):
            self._input_vectors(data)

    def _input_vectors(self, data: TrainingData) -> None:
        if self.world.size > 1:
            path = self.work / "inputs.vectors"
            kinds = (data.docids, data.queries)
            data.vectors = self.features.mapped(kinds, path, self.world, self.progress, "encoding docids")
            return
        vectors = self.features.vectors(data.docids, self.progress, "encoding docids")
        if data.queries:
            vectors = np.vstack(
                [vectors, self.features.vectors(data.queries, self.progress, "encoding queries and passages")]
            )
        data.vectors = vectors

    def _train(self, model: Nar, data: TrainingData, table: DocidTable, priors: Priors, dev: Queries) -> Trained:
        options = self._train_options(data)
        some = dev.first(options.dev_queries) if options.dev_queries else dev.first(0)
        rule = start_rule(self.recipe)
        frozen = model.design == "mlp" and not options.fine_tune
        pooled = None
        if frozen and len(some) and self.world.first:
            pooled = self.features.vectors(some.texts).astype(np.float32)

        decoder: Decoder | None = None  # of the first check; a scorer has a copy of the rows, and is not kept

        def evaluate(current: Nar) -> float:
            nonlocal decoder
            x = x_of(current, some.texts, pooled)
            scorer = scorer_of(current, priors, rule)
            ranker = Ranker(table, scorer, Ngrams(data.vocabulary), made=decoder)
            if rule.score != "composed":  # there the factors of docids change with the rows
                decoder = ranker.decoder
            return docid_mrr(ranker, ranker.queries(some.texts, x, x[:, 0]), some.relevant)

        home = self.work / "training"
        trained = train(
            model,
            data,
            options,
            rule,
            priors,
            folder=home,
            evaluate=evaluate if len(some) else None,
            progress=self.progress,
        )
        if not self.world.first:
            return trained
        kept = self.folder / TRAINING
        kept.mkdir(exist_ok=True)
        shutil.copyfile(home / "log.jsonl", kept / "log.jsonl")
        if (home / "tensorboard").is_dir():
            shutil.copytree(home / "tensorboard", kept / "tensorboard", dirs_exist_ok=True)
        try:
            plot(home, kept / "loss.png")
        except PixnarError as error:
            self.say(str(error))
        ended = " (early: dev no longer improved)" if trained.stopped_early else ""
        self.say(
            f"training: {trained.steps:,} steps{ended}, softmax {trained.softmax}, kept step {trained.best_step:,}"
        )
        return trained

    def _train_options(self, data: TrainingData) -> Train:
        """The recipe's, with a time limit by the size of the corpus where it has no limit."""
        options = self.recipe.train
        if options.minutes or options.steps or options.epochs:
            return options
        return replace(options, minutes=default_minutes(len(data.docids) + len(data.queries)))

    def _calibrate(self, model: Nar, data: TrainingData, dev: Queries) -> None:
        """Measure log Z per slot on dev, or on docids where there is no dev split."""
        texts = (dev.texts or data.docids)[:256]
        x = model.slot_vectors(texts)
        before = model.log_z.cpu().clone()
        left = calibrate(model, self.world.tell_array(x))
        raw = np.abs(left + model.log_z.cpu().numpy() - before.numpy())[:, 1:].mean()
        self.report.facts |= {"log_z_abs": float(raw), "log_z_abs_calibrated": float(np.abs(left[:, 1:]).mean())}

    def shortlist(self, model: Nar, data: TrainingData) -> Shortlist | None:
        """Made once, and kept in the work folder until `choices` has decided how many lists a query takes."""
        path, wish = self.work / SHORTLIST, self.recipe.shortlist
        if not wish.learn:
            return None
        if not self.world.tell(path.exists()):
            self._list(model, data, wish, path)
        made = Shortlist.load(path)
        share = min(1.0, made.k * made.mean_length / len(data.vocabulary))
        self.say(
            f"shortlist: {len(made.c):,} lists of {made.mean_length:,.0f} tokens, {made.k} a query, about {share:.0%}"
        )
        return made

    def _list(self, model: Nar, data: TrainingData, wish: ShortlistWish, path: Path) -> None:
        if self.world.size == 1:
            rule = start_rule(self.recipe)
            make_shortlist(model, data, wish, rule, self.recipe.train.seed, self.progress).save(path)
            return
        if self.recipe.scoring.score == "composed":  # cells are made of all rows, which only the first process has
            if self.world.first:
                cells_of_docids(model, data, wish, self.recipe.train.seed, self.progress).save(path)
            self.world.wait()
            return
        shard = Nar.from_pretrained(self._model_path(), self.world) if self.world.first else model
        shard.to(self.world.device(pick_device(self.recipe.train.device)))
        x0, targets = examples(shard, data, self.recipe.train.seed)
        c = learn_vectors(shard.head, x0, targets, wish, self.recipe.train.seed, self.progress)
        if self.world.first:
            list_tokens(c, model.head, wish, len(x0)).save(path)
        self.world.wait()

    def ranker(
        self,
        model: Nar,
        data: TrainingData,
        table: DocidTable,
        priors: Priors,
        dev: Queries,
        shortlist: Shortlist | None,
    ) -> tuple[Ranker, list[Query]]:
        """Everything search needs, written to the index, and the dev queries ready to be asked."""
        write_priors(self.folder / PRIORS, priors, model.log_z.cpu().numpy())
        scorer = scorer_of(model, priors, start_rule(self.recipe))
        ranker = Ranker(table, scorer, Ngrams(data.vocabulary), shortlist)
        ranker.depth, ranker.expansion = self.recipe.fuse.depth, self.recipe.evidence.expansion
        wanted = (self.corpus, data, table, self.folder, self.recipe, self.progress, self.features)
        sources = Sources(*wanted, echoes=self.named)
        ranker.evidence, ranker.bm25, ranker.vectors = sources.evidence(), sources.bm25(), sources.vectors()
        ranker.text = sources.text()
        rows = sum(len(made.matrix) for made in (ranker.vectors, ranker.text) if made is not None)
        ranker.nearest = rows <= self.recipe.fuse.nearest
        self.report.facts["nearest"] = ranker.nearest
        if not len(dev):
            texts = _like_queries(data.docids)
            return ranker, ranker.queries(texts, *model.query_vectors(texts))
        x, pooled = self._dev_vectors(model, dev)
        return ranker, ranker.queries(dev.texts, x, pooled)

    def _dev_vectors(self, model: Nar, dev: Queries) -> tuple[Floats, Floats]:
        if model.design == "mlp" and not self.recipe.train.fine_tune:
            pooled = self.features.vectors(dev.texts).astype(np.float32)
            return x_of(model, dev.texts, pooled), pooled
        return model.query_vectors(dev.texts)

    def choices(
        self, ranker: Ranker, queries: Sequence[Query], dev: Queries
    ) -> tuple[ScoreRule, dict[str, dict[str, Any] | None]]:
        """The settings of the score and the weights of every fusion; both chosen on dev where the recipe lets them.

        All figures are cross-validated; what is shipped is then chosen on all queries.
        """
        rule = ranker.scorer.rule
        if not len(dev):
            self.say(
                "no dev split: the recipe's own settings and fixed weights are used; real queries would choose better"
            )
            if ranker.shortlist is not None and rule.score == "composed" and not self.recipe.shortlist.k:
                first = ranker.shortlist
                ranker.shortlist = first.take(min(_UNJUDGED * first.k, len(first.c)))
                queries = ranker.listed(queries)
            self._ship_shortlist(ranker)
            return rule, self._fixed(ranker, queries)
        some = dev.first(self.recipe.scoring.tune_queries)  # the weights of a fusion are chosen on all
        if ranker.shortlist is not None and rule.score == "composed" and not self.recipe.shortlist.k:
            queries = self._lists_of_a_query(ranker, queries, some)
        self._ship_shortlist(ranker)
        tuner, halves = RuleTuner(ranker, queries[: len(some)], some, self.progress), folds(len(dev))
        rules = [rule] * len(halves)
        if self.recipe.scoring.tune:
            orders, start = self.recipe.scoring.order == "auto", rule
            rule = tuner.best(start, orders=orders)
            for i, half in enumerate(halves):
                within = half.chosen_on[half.chosen_on < len(some)]
                rules[i] = tuner.best(start, within, orders=orders) if len(within) else start
            grid = COMPOSED_GRID if rule.score == "composed" else GRID
            tuned = ", ".join(f"{name} {value}" for name, value in rule.to_dict().items() if name in (*grid, "scale"))
            self.say(f"score chosen on dev: {tuned}")
        self._compare_with_full(ranker, queries, some, tuner, rules)
        ranker = with_rule(ranker, rule)
        tables = gather(ranker, queries, ranker.depth, self.progress)
        crossed = CrossValidation(ranker, queries, dev, rules, {rule: tables}, self.progress)
        own, everything = _sources(tables[0].columns)
        if halves and self.recipe.fuse.margin:
            worth = crossed.worth(everything, self.recipe.fuse.margin)
            self.report.facts["worth"] = worth
            dropped = {name for name, share in worth.items() if share < self.recipe.fuse.margin}
            everything = [name for name in everything if name not in dropped]
            for name, share in worth.items():
                self.say(f"{name}: {share:+.1%} of MRR@10, cross-validated" + (", left out" * (name in dropped)))
        if not halves:
            self.say("dev has one query: too few to cross-validate, so no figures are measured")
        fusions: dict[str, dict[str, Any] | None] = {}
        told = ("docids", "with evidence", "with fusion")
        for key, name, sources in zip(SOURCES, told, (own[:1], own, everything), strict=True):
            fusion = tune_fusion(tables, dev, sources, ranker.place_of)
            self.report.dev[name] = crossed.summary(sources) if halves else {}
            figures = ", ".join(f"{key} {value:.3f}" for key, value in self.report.dev[name].items())
            if halves:
                self.say(f"dev, cross-validated, {name}: {figures}")
            fusions[key] = None if list(fusion.weights) == [DOCID_SCORE] else fusion.to_dict()
        return rule, fusions

    def _fixed(self, ranker: Ranker, queries: Sequence[Query]) -> dict[str, dict[str, Any] | None]:
        """Fusions by fixed weights; docids stand in for queries to see how far scores spread."""
        tables = gather(ranker, queries, ranker.depth, self.progress)
        own, everything = _sources(tables[0].columns)
        fusions: dict[str, dict[str, Any] | None] = dict.fromkeys(SOURCES)
        for key, sources in zip(SOURCES[1:], (own, everything), strict=True):
            if len(sources) > 1:
                fusions[key] = fixed_fusion(tables, {name: _WITHOUT_DEV[name] for name in sources}).to_dict()
        return fusions

    def _lists_of_a_query(self, ranker: Ranker, queries: Sequence[Query], dev: Queries) -> Sequence[Query]:
        """Take as many lists a query as dev MRR@10 within 1 % needs; no shortlist where a fifth of V is not enough.

        The ranker is changed; the queries come back with their new tokens.
        """
        first = ranker.shortlist
        assert first is not None
        few = len(dev)
        full = docid_mrr(ranker.without_shortlist(), [q._replace(tokens=None) for q in queries[:few]], dev.relevant)
        most = _MOST_LISTED * (ranker.scorer.head.count - 1)
        for k in sorted({min(max(1, round(share * first.k)), len(first.c)) for share in _LISTS}):
            ranker.shortlist = first.take(k)
            found = ranker.listed(queries)
            size = np.mean([0 if q.tokens is None else len(q.tokens) for q in found[:few]])
            if size > most:
                break
            if docid_mrr(ranker, found[:few], dev.relevant) >= (1 - _LIST_LOSS) * full:
                return found
        self.say("shortlist: a fifth of the vocabulary loses more than 1 % of MRR@10, so every token is scored")
        ranker.shortlist = None
        return ranker.listed(queries)

    def _ship_shortlist(self, ranker: Ranker) -> None:
        """Write the shortlist that the index searches with; an earlier run may have left another one."""
        path = self.folder / SHORTLIST
        path.unlink(missing_ok=True)
        if ranker.shortlist is not None:
            ranker.shortlist.save(path)

    def _compare_with_full(
        self, ranker: Ranker, queries: Sequence[Query], dev: Queries, tuner: RuleTuner, rules: Sequence[ScoreRule]
    ) -> None:
        """What the shortlist costs: MRR@10 by docids with it and with every token scored, cross-validated."""
        if ranker.shortlist is None or not rules:
            return
        cut, full = [], []
        for half, rule in zip(folds(len(queries)), rules, strict=True):
            measured = half.measured[half.measured < len(dev)]
            every = [queries[i]._replace(tokens=None) for i in measured.tolist()]
            relevant = [dev.relevant[i] for i in measured.tolist()]
            cut.append(tuner.ranks(rule)[measured])
            full.append(docid_ranks(with_rule(ranker, rule).without_shortlist(), every, relevant))
        size = float(np.mean([0 if q.tokens is None else len(q.tokens) for q in queries[: len(dev)]]))
        share = size / (ranker.scorer.head.count - 1)
        reached = float(np.concatenate(cut).mean()), float(np.concatenate(full).mean())
        self.report.facts |= {"shortlist_share": share, "shortlist_mrr10": reached[0], "full_mrr10": reached[1]}
        self.say(
            f"shortlist: MRR@10 {reached[0]:.3f} with {share:.1%} of the vocabulary, {reached[1]:.3f} with all of it"
        )

    def spelling(self, model: Nar, ranker: Ranker, dev: Queries) -> None:
        """The lexicon, where the recipe wants one, and whether queries are corrected by it."""
        wish = self.recipe.serve.spelling
        if wish == "off":
            return
        lexicon = write_lexicon(self.corpus, model.encoder.tokenizer.get_vocab(), self.folder, self.progress)
        encoder = QueryEncoder.load(self.folder / ENCODER)
        self.report.facts["spelling"] = decide(wish, ranker, encoder, lexicon, dev, self.say)

    def _tell_cut(self, data: TrainingData, slots: int) -> None:
        cut = float((data.tokens.lengths >= slots).mean())
        self.report.facts |= {"slots": slots, "docids_cut": cut, "tokens_per_docid": float(data.tokens.lengths.mean())}
        self.say(
            f"slots: {slots}; {data.tokens.lengths.mean():.2f} tokens per docid, "
            f"{cut:.2%} of the docids have no slot left for their end or are cut"
        )

    def _seal(self, rule: ScoreRule, fusions: dict[str, dict[str, Any] | None], model: Nar, origin: str) -> None:
        content = {
            "corpus": self.corpus.name,
            "recipe": to_dict(self.recipe),
            "rule": rule.to_dict(),
            "fusion": fusions["all"],
            "fusions": fusions,
            "depth": self.recipe.fuse.depth,
            "expansion": self.recipe.evidence.expansion,
            "nearest": self.report.facts["nearest"],
            "spelling": self.report.facts.get("spelling", {}).get("on", False),
            "slots": model.slots.slots,
            "origin": origin,
            "facts": self.report.facts,
            "dev": self.report.dev,
        }
        write_manifest(self.folder, content)


def default_minutes(inputs: int) -> float:
    """How long to train where the recipe sets no limit: a few passes over all inputs, docids and queries.

    >>> [default_minutes(n) for n in (20_000, 500_000, 10_000_000)]
    [2.0, 20.5, 60.0]
    """
    return min(60.0, max(2.0, 0.5 + inputs / 25_000))


def _sources(columns: Collection[str]) -> tuple[list[str], list[str]]:
    """What the model alone says, by docids and as evidence; and that with other retrievers."""
    own = [DOCID_SCORE] + [name for name in (OWN, EXPANSION) if name in columns]
    return own, own + [name for name in (DENSE, TEXT, BM25) if name in columns]


def _like_queries(docids: Sequence[str]) -> list[str]:
    """Some docids, evenly over all of them; those as long as queries are, where there are any."""
    alike = [text for text in docids if 3 <= text.count(" ") <= 15] or list(docids)
    return alike[:: max(1, len(alike) // _STAND_INS)][:_STAND_INS]
