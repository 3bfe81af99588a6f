"""From a corpus to an index: vocabulary, docid table, model, training, shortlist, sources, choices on dev."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.base.workdir import swap
from pixnar.corpus import Corpus, open_corpus
from pixnar.corpus.queries import DEV, FEWEST, hold_out
from pixnar.docid_generation import DocidOptions, make_docids
from pixnar.evaluation.queries import Queries, read_queries
from pixnar.fusion.fuse import Fusion
from pixnar.fusion.terms import Ngrams
from pixnar.index.files import (
    DOCIDS,
    ENCODER,
    PRIORS,
    SHORTLIST,
    write_priors,
)
from pixnar.index.manifest import write_manifest
from pixnar.model.encoder import check_encoder, place_of
from pixnar.model.features import FeatureCache
from pixnar.model.nar import Nar, scorer_of
from pixnar.model.process_group import SINGLE, ProcessGroup
from pixnar.pipeline.choices import DevChoices
from pixnar.pipeline.context import FitContext, FitReport, claim, forget, start_rule, x_of
from pixnar.pipeline.export import ship
from pixnar.pipeline.model_stage import ModelStage
from pixnar.pipeline.shortlist import cells_of_docids, examples, learn_vectors, list_tokens, make_shortlist
from pixnar.pipeline.sources import SourceBuilder, decide, unused, write_lexicon
from pixnar.pipeline.tune import (
    with_rule,
)
from pixnar.recipe import Recipe, ShortlistSettings, to_dict
from pixnar.runtime import QueryEncoder
from pixnar.runtime.shortlist import Shortlist
from pixnar.scoring import Priors, ScoreRule
from pixnar.search.ranker import PreparedQuery, Ranker
from pixnar.table import DocidTable, build_table
from pixnar.train.data import TrainingData, read_together
from pixnar.train.loop import pick_device
from pixnar.vocab import TargetVocabulary, TokenizerVocabulary, Vocabulary, load_vocabulary

Floats = NDArray[np.float32]

_STAND_INS = 100  # docids that stand in for queries where there are none


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
) -> FitReport:
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


class _Fit(FitContext):
    """All stages of a fit, in order."""

    def all(self) -> FitReport:
        if not (self.model_path / "model.json").exists():
            check_encoder(self.recipe.model.encoder)
        self.hold_out()
        self.world.in_turn(self.names)
        vocabulary = self.world.in_turn(self.vocabulary)
        table = self.world.in_turn(lambda: self.table(vocabulary))
        path, settings = self.work / "inputs.pixnar", self.recipe.train
        passages, typos, world = settings.passages, settings.typos, self.world
        data = read_together(self.corpus, vocabulary, path, world, self.progress, passages=passages, typos=typos)
        slots = self.recipe.model.slots or data.default_slots()
        self._tell_cut(data, slots)
        priors = Priors.count(data.token_counts()[:-1], data.tokens.lengths, slots)
        dev = read_queries(self.corpus, "dev", self.recipe.fuse.dev_queries)
        stage = ModelStage(self)
        model = stage.run(data, table, priors, slots, dev)
        shortlist = self.shortlist(model, data)
        if not self.world.first:
            return self.report
        ranker, queries = self.ranker(model, data, table, priors, dev, shortlist, stage.features)
        rule, fusions = DevChoices(self).choose(ranker, queries, dev)
        chosen, fusion = with_rule(ranker, rule), fusions["all"]
        chosen.fusion = Fusion.from_dict(fusion) if fusion else None
        chosen.drop_unweighted()
        if self.recipe.fuse.margin:
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
        else:
            self.say(f"no dev split: there are too few documents and names to hold out {FEWEST} of them as one")

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
        path, settings = self.work / "vocabulary", self.recipe.vocab
        if not path.exists():
            texts = (row.docid for row in self.corpus.docids(self.progress))
            if settings.kind == "phrase":
                made: TargetVocabulary = Vocabulary.build(
                    texts,
                    size=settings.size,
                    min_count=settings.min_count or None,
                    max_words=settings.max_words,
                    threads=self.threads,
                    progress=self.progress,
                )
            elif settings.kind == "wordpiece":
                made = TokenizerVocabulary.from_pretrained(place_of(self.recipe.model.encoder), texts)
            elif settings.kind == "bpe":
                made = TokenizerVocabulary.train_bpe(texts, settings.size, min_count=settings.min_count or 2)
            else:
                made = TokenizerVocabulary.train_unigram(texts, settings.size)
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

    def shortlist(self, model: Nar, data: TrainingData) -> Shortlist | None:
        """Made once, and kept in the work folder until `choices` has decided how many lists a query takes."""
        path, settings = self.work / SHORTLIST, self.recipe.shortlist
        if not settings.learn:
            return None
        if not self.world.tell(path.exists()):
            self._list(model, data, settings, path)
        made = Shortlist.load(path)
        share = min(1.0, made.k * made.mean_length / len(data.vocabulary))
        self.say(
            f"shortlist: {len(made.c):,} lists of {made.mean_length:,.0f} tokens, {made.k} a query, about {share:.0%}"
        )
        return made

    def _list(self, model: Nar, data: TrainingData, settings: ShortlistSettings, path: Path) -> None:
        if self.world.size == 1:
            rule = start_rule(self.recipe)
            make_shortlist(model, data, settings, rule, self.recipe.train.seed, self.progress).save(path)
            return
        if self.recipe.scoring.score == "composed":  # cells are made of all rows, which only the first process has
            if self.world.first:
                cells_of_docids(model, data, settings, self.recipe.train.seed, self.progress).save(path)
            self.world.wait()
            return
        shard = Nar.from_pretrained(self.model_path, self.world) if self.world.first else model
        shard.to(self.world.device(pick_device(self.recipe.train.device)))
        x0, targets = examples(shard, data, self.recipe.train.seed)
        c = learn_vectors(shard.head, x0, targets, settings, self.recipe.train.seed, self.progress)
        if self.world.first:
            list_tokens(c, model.head, settings, len(x0)).save(path)
        self.world.wait()

    def ranker(
        self,
        model: Nar,
        data: TrainingData,
        table: DocidTable,
        priors: Priors,
        dev: Queries,
        shortlist: Shortlist | None,
        features: FeatureCache,
    ) -> tuple[Ranker, list[PreparedQuery]]:
        """Everything search needs, written to the index, and the dev queries ready to be asked."""
        write_priors(self.folder / PRIORS, priors, model.log_z.cpu().numpy())
        scorer = scorer_of(model, priors, start_rule(self.recipe))
        ranker = Ranker(table, scorer, Ngrams(data.vocabulary), shortlist)
        ranker.depth, ranker.expansion = self.recipe.fuse.depth, self.recipe.lexical.expansion
        wanted = (self.corpus, data, table, self.folder, self.recipe, self.progress, features)
        sources = SourceBuilder(*wanted, echoes=self.named)
        ranker.lexical, ranker.vectors, ranker.text = sources.lexical(), sources.vectors(), sources.text()
        rows = sum(len(made.matrix) for made in (ranker.vectors, ranker.text) if made is not None)
        ranker.nearest = rows <= self.recipe.fuse.nearest
        self.report.facts["nearest"] = ranker.nearest
        if not len(dev):
            texts = _like_queries(data.docids)
            return ranker, ranker.queries(texts, *model.query_vectors(texts))
        x, pooled = self._dev_vectors(model, dev, features)
        return ranker, ranker.queries(dev.texts, x, pooled)

    def _dev_vectors(self, model: Nar, dev: Queries, features: FeatureCache) -> tuple[Floats, Floats]:
        if model.design == "mlp" and not self.recipe.train.fine_tune:
            pooled = features.vectors(dev.texts).astype(np.float32)
            return x_of(model, dev.texts, pooled), pooled
        return model.query_vectors(dev.texts)

    def spelling(self, model: Nar, ranker: Ranker, dev: Queries) -> None:
        """The lexicon, where the recipe wants one, and whether queries are corrected by it."""
        settings = self.recipe.serve.spelling
        if settings == "off":
            return
        lexicon = write_lexicon(self.corpus, model.encoder.tokenizer.get_vocab(), self.folder, self.progress)
        encoder = QueryEncoder.load(self.folder / ENCODER)
        self.report.facts["spelling"] = decide(settings, ranker, encoder, lexicon, dev, self.say)

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
            "expansion": self.recipe.lexical.expansion,
            "nearest": self.report.facts["nearest"],
            "spelling": self.report.facts.get("spelling", {}).get("on", False),
            "spelling_least": self.report.facts.get("spelling", {}).get("least", 1),
            "slots": model.slots.slots,
            "origin": origin,
            "facts": self.report.facts,
            "dev": self.report.dev,
        }
        write_manifest(self.folder, content)


def _like_queries(docids: Sequence[str]) -> list[str]:
    """Some docids, evenly over all of them; those as long as queries are, where there are any."""
    alike = [text for text in docids if 3 <= text.count(" ") <= 15] or list(docids)
    return alike[:: max(1, len(alike) // _STAND_INS)][:_STAND_INS]
