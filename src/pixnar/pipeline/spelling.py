"""The lexicon of an index, and whether it corrects queries: decided on dev."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pixnar.base.progress import Progress
from pixnar.corpus import Corpus
from pixnar.corpus.queries import Perturbation
from pixnar.evaluation.metrics import mrr_at
from pixnar.evaluation.queries import Queries
from pixnar.index.files import LEXICON
from pixnar.runtime import TextEncoder
from pixnar.search.ranker import Ranker
from pixnar.search.spelling import Lexicon, Speller, whole_words

LOSS = 0.005  # of dev MRR@10 without typos, relative: what correcting may cost
_MISSPELT = 400  # dev queries that are also asked with a typo


def write_lexicon(corpus: Corpus, pieces: Iterable[str], folder: Path, progress: Progress | None = None) -> Lexicon:
    """The words of a corpus and the whole words among a tokenizer's pieces, written once."""
    path = folder / LEXICON
    if not path.exists():
        Lexicon.of_corpus(corpus, whole_words(pieces), progress).save(path)
    return Lexicon.load(path)


def decide(
    setting: str,
    ranker: Ranker,
    encoder: TextEncoder,
    lexicon: Lexicon,
    dev: Queries,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Measure on dev what correcting does to queries as they are and with a typo; facts, `on` among them.

    With "auto" it is on unless it costs more than 0.5 % of MRR@10 of queries as they are.
    """
    facts: dict[str, Any] = {"on": True, "words": len(lexicon)}
    if not len(dev):
        say(f"spelling: on, {len(lexicon):,} words; without a dev split its effect was not measured")
        return facts
    misspelt = dev.first(_MISSPELT)
    typo = Perturbation(typos=1)
    texts = [typo.apply(text, one) for text, one in zip(misspelt.texts, misspelt.ids, strict=True)]
    asked = _Asked(ranker, encoder)
    figures: dict[str, dict[str, float]] = {}
    speller = Speller(lexicon)
    for name, queries, given in (("clean", dev, dev.texts), ("one_typo", misspelt, texts)):
        figures[name] = {
            "without": asked.mrr(given, queries),
            "with": asked.mrr([speller.correct(text) for text in given], queries),
        }
    clean, typos = figures["clean"], figures["one_typo"]
    facts["on"] = setting == "on" or clean["with"] >= (1 - LOSS) * clean["without"]
    facts["dev_mrr10_in_sample"] = figures
    say(
        f"spelling: {'on' if facts['on'] else 'off'}, {len(lexicon):,} words; dev MRR@10, in sample: "
        f"{clean['without']:.4f}, corrected {clean['with']:.4f}; "
        f"with one typo, {len(misspelt)} queries: {typos['without']:.4f}, corrected {typos['with']:.4f}"
    )
    return facts


class _Asked:
    """Whole searches, each text once."""

    def __init__(self, ranker: Ranker, encoder: TextEncoder) -> None:
        self._engine, self._encoder = ranker, encoder
        self._known: dict[str, list[str]] = {}

    def mrr(self, texts: Sequence[str], queries: Queries) -> float:
        """MRR@10 of queries asked by these texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            found = self._engine.search(self._engine.queries(new, *self._encoder.query_vectors(new)))
            self._known |= {text: [hit.doc_id for hit in hits] for text, hits in zip(new, found, strict=True)}
        return mrr_at([self._known[text] for text in texts], queries.relevant, 10)
