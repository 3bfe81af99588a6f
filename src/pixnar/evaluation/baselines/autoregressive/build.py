"""Builder of the autoregressive baselines: from a corpus to the folder of one row, trained or with another's model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, open_corpus
from pixnar.evaluation.baselines.autoregressive.backbone import Seq2Seq
from pixnar.evaluation.baselines.autoregressive.collection import Collection, Pieces, TokenTexts
from pixnar.evaluation.baselines.autoregressive.ids import END, FIRST, NAIVE_TOKENS, Tokens, cluster_paths, naive_ids
from pixnar.evaluation.baselines.autoregressive.pairs import VIEWS, IdPairs, PairSource, Shares, ViewPairs
from pixnar.evaluation.baselines.autoregressive.retriever import (
    DSI,
    INDEX,
    MINDER,
    MODEL,
    NGRAM_ROWS,
    AutoregressiveRetriever,
    IdRetriever,
    NgramRetriever,
    RowSettings,
)
from pixnar.evaluation.baselines.autoregressive.substrings import Substrings
from pixnar.evaluation.baselines.autoregressive.training import CURVE, Learned, Learning, learn, write_curve
from pixnar.evaluation.baselines.autoregressive.trie import Trie
from pixnar.evaluation.baselines.entries import AUTO, BOTH, DOCIDS, TEXT, readable
from pixnar.evaluation.baselines.folder import BASELINE, building, seal
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import Queries, read_queries
from pixnar.index import manifest
from pixnar.model.encoder import MINILM, Encoder
from pixnar.train.data import read_inputs

Place = str | os.PathLike[str]
Make = Callable[[Seq2Seq], AutoregressiveRetriever]

NAIVE, SEMANTIC = "naive", "semantic"
DEV_QUERIES = 300
"""Dev queries that choose settings; one takes a fraction of a second."""

_CLUSTERS, _LEAF = 10, 100  # of semantic ids


def build_autoregressive(
    corpus: Place | Corpus,
    folder: Place,
    settings: RowSettings,
    *,
    learning: Learning | None = None,
    model: Place | None = None,
    over: str = AUTO,
    ids: str = NAIVE,
    shares: Shares | None = None,
    encoder: Place | None = None,
    overwrite: bool = False,
    threads: int = 1,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Write an autoregressive baseline; facts about it.

    It is trained as `learning` says, or takes the `model` of another row over the same corpus. `over` is what documents
    consist of (`auto`: what the corpus has), `ids` the kind of ids of DSI. What a row leaves open is chosen on dev. An
    interrupted training resumes with the same output and settings.
    """
    settings.check()
    _check(settings, learning, model, ids)
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    over = readable(source) if over == AUTO else over
    if settings.row == MINDER and over == TEXT:
        raise PixnarError(f"over {TEXT} is not possible for {MINDER}, which generates docids: give {DOCIDS} or {BOTH}")
    place = Path(os.path.abspath(folder))  # "." and ".." have no name
    work = place.with_name(f".{place.name}.tuning")  # outlives a kill, unlike what `building` gives
    with building(place, overwrite=overwrite) as aside:
        collection = Collection.read(source, read_inputs(source, progress), over, progress)
        made: AutoregressiveRetriever
        if model is not None:
            made, options, facts = _reused(collection, Path(model), aside, settings, threads)
        else:
            assert learning is not None
            maker = _Maker(collection, settings, Encoder.load(encoder or MINILM), threads, progress)
            dev = read_queries(source, "dev", DEV_QUERIES).first(learning.dev_queries)
            made, learned = maker.run(learning, ids, shares or Shares(), dev, work, say)
            options = {"over": over, "encoder": maker.encoder.name, "learning": asdict(learning)}
            options |= {"ids": ids} if settings.row == DSI else {"shares": asdict(shares or Shares())}
            training = {name: value for name, value in asdict(learned).items() if name != "curve"}
            facts = {"training": training, "collection": collection.fingerprint(), "entries": len(collection.docids)}
            write_curve(aside, learned)
        figures = made.choose(read_queries(source, "dev", DEV_QUERIES))
        made.save(aside)
        facts |= {"documents": len(made.doc_ids), "dev": figures}
        seal(aside, settings.row, options | {"settings": made.settings.to_dict()}, facts, source.name)
    shutil.rmtree(work, ignore_errors=True)
    return facts


def _check(settings: RowSettings, learning: Learning | None, model: Place | None, ids: str) -> None:
    if model is not None and settings.row == DSI:
        raise PixnarError(f"model is for {', '.join(NGRAM_ROWS)}: leave it out, and train {DSI}")
    if (model is None) == (learning is None):
        raise PixnarError("give minutes or pairs to train for, or the model of another row, and not both")
    if learning:
        learning.check()
    if ids not in (NAIVE, SEMANTIC):
        raise PixnarError(f"ids {ids!r} are not possible: give {NAIVE} or {SEMANTIC}")


def _reused(
    collection: Collection, folder: Path, aside: Path, settings: RowSettings, threads: int
) -> tuple[NgramRetriever, dict[str, Any], dict[str, Any]]:
    """The retriever over the model and index of another row, and the options and facts of its training."""
    content = manifest.read_manifest(folder, BASELINE)
    if content["kind"] not in NGRAM_ROWS:
        raise PixnarError(f"{folder} is a {content['kind']} baseline: give one of {', '.join(NGRAM_ROWS)}")
    options, facts = content["options"], content["facts"]
    if options["over"] != collection.over:
        raise PixnarError(f"{folder} is over {options['over']}: give --over {options['over']}, or minutes or pairs")
    if facts["collection"] != collection.fingerprint():
        raise PixnarError(f"{folder} was trained on another corpus: give a model of this one, or minutes or pairs")
    manifest.check_files(folder, content, list(content["files"]), BASELINE)
    for ending in ("json", "png"):
        shutil.copyfile(folder / f"{CURVE}.{ending}", aside / f"{CURVE}.{ending}")
    model, index = Seq2Seq.from_pretrained(folder / MODEL), Substrings.load(folder / INDEX)
    kept = {name: facts[name] for name in ("training", "collection", "entries")}
    retriever = NgramRetriever(model, collection.doc_ids, index, settings, threads=threads)
    return retriever, {name: options[name] for name in ("over", "encoder", "learning", "shares")}, kept


class _Maker:
    """What a row is trained from: the collection, the encoder, and its word pieces."""

    def __init__(
        self, collection: Collection, settings: RowSettings, encoder: Encoder, threads: int, progress: Progress | None
    ) -> None:
        self.collection, self.settings, self.encoder = collection, settings, encoder
        self.threads, self.progress = threads, progress

    def run(
        self,
        learning: Learning,
        ids: str,
        shares: Shares,
        dev: Queries,
        work: Path,
        say: Callable[[str], None] | None,
    ) -> tuple[AutoregressiveRetriever, Learned]:
        """Train, and the retriever over the best weights."""
        made_of = [self.settings.to_dict(), asdict(shares), ids]
        made_of += [self.collection.fingerprint(), self.encoder.fingerprint(), dev.texts]
        of_ids = self.settings.row == DSI
        model, pairs, make = self._of_ids(ids, learning) if of_ids else self._of_ngrams(shares, learning)

        def judge(trained: Seq2Seq) -> float:
            hits = make(trained).search_batch(dev.texts)
            return mrr_at([[hit.id for hit in found] for found in hits], dev.relevant, 10)

        if say and not len(dev):
            say("no dev split: the weights of the last step are kept, whatever they are worth")
        judged = judge if len(dev) else None
        learned = learn(model, pairs, judged, learning, folder=work, of=made_of, progress=self.progress, say=say)
        return make(model), learned

    def _of_ngrams(self, shares: Shares, learning: Learning) -> tuple[Seq2Seq, PairSource, Make]:
        texts = TokenTexts.of(self.collection, self._pieces)
        index = Substrings.of(texts.documents(self.collection))
        model = Seq2Seq(self.encoder, texts.pieces, views=VIEWS, seed=learning.seed)
        mask = self.encoder.tokenizer.mask_token
        pairs = ViewPairs(self.collection, texts, shares, mask=mask, seed=learning.seed)
        doc_ids = self.collection.doc_ids
        return model, pairs, lambda model: NgramRetriever(model, doc_ids, index, self.settings, threads=self.threads)

    def _of_ids(self, kind: str, learning: Learning) -> tuple[Seq2Seq, PairSource, Make]:
        ids, tokens = self._ids(kind, learning.seed)
        longest = max(map(len, ids))
        model = Seq2Seq(self.encoder, tokens, most=longest + 1, seed=learning.seed)
        pairs = IdPairs(self.collection, ids, self._pieces, seed=learning.seed)
        trie, doc_ids = Trie.of(ids, end=END), self.collection.doc_ids
        return model, pairs, lambda model: IdRetriever(model, doc_ids, trie, self.settings, threads=self.threads)

    def _ids(self, kind: str, seed: int) -> tuple[list[Tokens], int]:
        """The ids of all documents, and how many tokens they are made of."""
        collection = self.collection
        if kind == NAIVE:
            return naive_ids(len(collection.doc_ids), seed), NAIVE_TOKENS
        texts = [
            " ".join(filter(None, [title, body, *(collection.docids[i] for i in named)]))
            for title, body, named in zip(collection.titles, collection.bodies, collection.named, strict=True)
        ]

        def report(done: int) -> None:
            if self.progress:
                self.progress("encoding documents", done, len(texts))

        paths = cluster_paths(self.encoder.embed(texts, report), k=_CLUSTERS, leaf=_LEAF, seed=seed)
        return [tuple(FIRST + digit for digit in path) for path in paths], FIRST + _LEAF

    @property
    def _pieces(self) -> Pieces:
        tokenizer = self.encoder.tokenizer
        return lambda texts: tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []
