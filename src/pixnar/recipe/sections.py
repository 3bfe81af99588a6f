"""Sections of a recipe: a frozen dataclass each, and for every setting its default, its range and a description."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

HUGE = 2**40


@dataclass(frozen=True)
class Allowed:
    """Allowed values of a setting: a range of numbers, some words or any text; `about` describes the setting."""

    about: str
    low: float = -math.inf
    high: float = math.inf
    above: bool = False  # the value must be greater than `low`; otherwise both ends are allowed
    words: tuple[str, ...] = ()
    pattern: str = ""  # a text must match it; `shape` says so in plain words
    shape: str = ""


def setting(default: Any, about: str, low: float = -math.inf, high: float = math.inf, **rest: Any) -> Any:
    """A dataclass field with its default, description and allowed values."""
    return field(default=default, metadata={"allowed": Allowed(about, low, high, **rest)})


@dataclass(frozen=True, kw_only=True)
class Vocab:
    """The output vocabulary: the tokens that the model can predict in one slot."""

    kind: str = setting(
        "phrase",
        "phrase: whole words and phrases; wordpiece, bpe and unigram: sub-word baselines",
        words=("phrase", "wordpiece", "bpe", "unigram"),
    )
    size: int = setting(
        131072, "maximum number of tokens; larger is better and slower (the paper uses up to 5 million)", 512, 2**31
    )
    min_count: int = setting(
        0, "minimum number of times a phrase occurs in the docids; 0: derived from the size of the corpus", 0, HUGE
    )
    max_words: int = setting(8, "maximum number of words in a phrase", 1, 64)


@dataclass(frozen=True, kw_only=True)
class Model:
    """The network: an encoder reads the query, slots predict tokens, and the head has one row per phrase."""

    encoder: str = setting(
        "sentence-transformers/all-MiniLM-L6-v2",
        "Hugging Face encoder, by name or folder",
        pattern=r"\S(.*\S)?",
        shape="the name or folder of a Hugging Face encoder",
    )
    slots: int = setting(
        0, "output positions; 0: enough for 99 % of the docids with their end token, at most 32", 0, 512
    )
    slot_design: str = setting(
        "mlp",
        "mlp: a small network combines the query vector with a slot vector; mask: mask tokens in the encoder's input",
        words=("mlp", "mask"),
    )
    head: str = setting(
        "solved",
        "initial phrase rows. solved: rows whose sums match the encoder's vectors of the docids; encoder: the "
        "encoder's vector of each phrase; random: as in the paper",
        words=("solved", "encoder", "random"),
    )
    pieces: bool = setting(
        True,
        "phrases also share the rows of their word pieces during training (only with head solved); the index stores "
        "the sums",
    )
    ridge: float = setting(1.0, "ridge penalty on solved rows; larger values keep the rows smaller", 0, 1e6, above=True)
    bias: bool = setting(True, "learn a bias per phrase, initialized from the phrase's frequency")
    hidden: int = setting(1024, "hidden width of the slot network (only with slot_design mlp)", 1, 65536)
    max_pieces: int = setting(64, "maximum word pieces of an input; longer inputs are truncated", 4, 8192)
    vectors: str = setting(
        "auto",
        "precision of the encoder when it computes vectors of docids, phrases and queries on a CPU. int8 is about "
        "twice as fast as fp32; auto: int8 if dense dev MRR@10 on a sample stays within 0.5 %",
        words=("auto", "fp32", "int8"),
    )


@dataclass(frozen=True, kw_only=True)
class Train:
    """Training: its length, learning rates, losses, negatives and evaluation."""

    minutes: float = setting(
        0.0,
        "training time, not counting evaluations on dev. 0: no limit; if steps and epochs are also 0, derived from "
        "the size of the corpus (2 minutes for 20,000 docids, 20 for 500,000, at most an hour)",
        0,
        1e6,
    )
    steps: int = setting(0, "maximum number of optimizer steps; 0: no limit", 0, HUGE)
    epochs: int = setting(
        0, "maximum number of passes over all pairs; 0: no limit. The first of the three limits ends training", 0, HUGE
    )
    batch: int = setting(128, "pairs per batch", 1, 2**20)
    accumulate: int = setting(1, "batches per optimizer step; each step sees batch × accumulate pairs", 1, 2**20)
    learning_rate: float = setting(5e-4, "learning rate of the slot layers", 0, 1, above=True)
    head_learning_rate: float = setting(1e-3, "learning rate of the phrase rows", 0, 1, above=True)
    encoder_learning_rate: float = setting(
        3e-5, "learning rate of the encoder while it is fine-tuned", 0, 1, above=True
    )
    warmup: int = setting(50, "steps of linear warm-up, at most a tenth of the run", 0, HUGE)
    schedule: str = setting(
        "linear",
        "learning rates after warm-up. linear: decay to 0; constant: no decay",
        words=("linear", "constant"),
    )
    l1: float = setting(1.0, "weight of the loss by which slot i predicts token i of the docid", 0, 1e6)
    l2: float = setting(
        0.25, "weight of the loss by which slot 0 predicts all tokens of the docid, in any order", 0, 1e6
    )
    l3: float = setting(
        1.0, "weight of the self-normalization loss (log Z)², which makes logits usable as log probabilities", 0, 1e6
    )
    ranking: float = setting(
        1.0,
        "weight of the loss that ranks the relevant document above others (score probability; the composed score "
        "always trains by ranking)",
        0,
        1e6,
    )
    negatives: int = setting(3, "hard negative documents per input; 0: only in-batch negatives", 0, 1024)
    rank_against: str = setting(
        "mined",
        "mined: rank against the documents of the batch and the hard negatives; all: against every document, which "
        "learns more from each example but takes longer",
        words=("mined", "all"),
    )
    mine_every: int = setting(300, "steps between two searches for hard negatives", 1, HUGE)
    correct_sampling: bool = setting(
        True,
        "correct the ranking loss for how often a document is sampled, so that documents with many docids are not "
        "penalized as negatives (composed score)",
    )
    docids: int = setting(
        8, "docids per document that a step scores; the rest of the document's score is estimated from them", 1, HUGE
    )
    teacher: float = setting(0.0, "weight of the distillation loss, which keeps the ranking near a teacher's", 0, 1e6)
    taught_by: str = setting(
        "hybrid",
        "the teacher. dense: the encoder's vectors of the docids; hybrid: these and BM25 over the docids",
        words=("dense", "hybrid"),
    )
    slot_examples: int = setting(
        16, "inputs per batch that also train the slots with l1 and l3 (composed score)", 1, 2**20
    )
    softmax: str = setting(
        "auto",
        "full: over the whole vocabulary; sampled: over a sample of it; auto: full while that is cheap",
        words=("auto", "full", "sampled"),
    )
    sample: int = setting(2048, "number of tokens in the sampled softmax", 1, 2**31)
    optimizer: str = setting(
        "auto",
        "optimizer of the phrase rows. adam: Adam; rows: Adam with one second moment per row, a third of the memory; "
        "auto: adam for the composed score and up to 4 GB of rows",
        words=("auto", "adam", "rows"),
    )
    contrast: str | int = setting(
        "auto",
        "steps of 64 pairs that fine-tune the encoder by contrast first, before rows are solved; 0: none; auto: one "
        "step per 250 docids, 800 at most, within 40 % of the training time. A step of short texts takes about a "
        "second on a core",
        0,
        HUGE,
        words=("auto",),
    )
    fine_tune: float = setting(
        0.0,
        "final share of training in which the encoder is trained too; before that it is frozen, which is much faster",
        0,
        1,
    )
    passages: int = setting(
        20,
        "maximum number of sentences of a document's text that train as queries for it; 0: train on docids and train "
        "queries only",
        0,
        HUGE,
    )
    typos: float = setting(0.0, "share of the docids that also train with a typo, for misspelt queries", 0, 1)
    per_document: int = setting(
        0,
        "maximum number of docids per document that are inputs in an epoch; 0: all, so that documents with many docids "
        "occur more often, as they do in most query logs",
        0,
        HUGE,
    )
    self_share: float = setting(
        0.1, "share of these inputs whose target is the same docid instead of another docid of the document", 0, 1
    )
    evaluate_every: int = setting(0, "steps between two evaluations on dev; 0: ten evaluations per stage", 0, HUGE)
    patience: int = setting(4, "stop after this many evaluations without a new best; 0: never", 0, HUGE)
    dev_queries: int = setting(500, "maximum number of dev queries per evaluation; 0: no evaluation", 0, HUGE)
    seed: int = setting(
        0,
        "random seed; runs with the same seed and data are identical if steps or epochs, not minutes, limit them",
        0,
        2**63 - 1,
    )
    tensorboard: bool = setting(
        False, "also write TensorBoard events to training/tensorboard in the index (needs the extra tensorboard)"
    )
    precision: str = setting(
        "auto",
        "precision of the arithmetic; auto: bf16 on devices that support it well, fp32 on a CPU",
        words=("auto", "fp32", "bf16"),
    )
    device: str = setting(
        "auto",
        "device for training: auto, cpu, cuda, cuda:1, xpu, mps",
        pattern=r"(auto|cpu|mps|(cuda|xpu)(:\d+)?)",
        shape='"auto", "cpu", "cuda", "cuda:1", "xpu" or "mps"',
    )


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How docids and documents are scored."""

    score: str = setting(
        "composed",
        "composed: the sum of the products of query and phrase rows, divided by the norm of the docid's vector; "
        "probability: the tokens' log probabilities, corrected by priors. Training optimizes the chosen score",
        words=("composed", "probability"),
    )
    prior_weight: float = setting(
        1.0, "share of a token's log frequency that is subtracted; 0: the paper's likelihood", 0, 4
    )
    copy: float = setting(
        0.2,
        "bonus of phrases that occur in the query. composed: added to their score, times the phrase's idf; "
        "probability: share of the probability mass they receive. 0: none, and tuning tries none",
        0,
        0.99,
    )
    floor: str = setting(
        "zero",
        "minimum score of a token. zero: 0; prior: slightly below its frequency; strict: no minimum, docids with a "
        "token outside the shortlist are not found",
        words=("zero", "prior", "strict"),
    )
    order: str = setting(
        "auto",
        "slots that score a token. slots: slot i scores token i; any: the best slot; bag: slot 0; auto: bag for the "
        "composed score; for the score probability, bag or any as the dev split selects. slots is never tried",
        words=("auto", "slots", "any", "bag"),
    )
    length_norm: float = setting(0.3, "a docid's score is divided by (length + 1) to this power", 0, 10)
    aggregate: str | int = setting(
        "logsumexp",
        "how docid scores become a document's score: max, logsumexp (over all docids), or a number n (logsumexp over "
        "the n best)",
        1,
        HUGE,
        words=("max", "logsumexp"),
    )
    scale: float = setting(
        1.0, "multiplier of token scores; the larger it is, the closer logsumexp is to max", 0, 1e6, above=True
    )
    ends: bool = setting(False, "score the end of a docid as a token (only with score probability and order slots)")
    normalize: bool = setting(
        True, "normalize by Z, the sum over the scored tokens; false: raw logits, as in the paper"
    )
    tune: bool = setting(
        True,
        "tune copy, aggregate and scale on the dev split, starting from the values here; with score probability also "
        "order, prior_weight and length_norm",
    )
    tune_queries: int = setting(400, "maximum number of dev queries for this tuning", 1, HUGE)


@dataclass(frozen=True, kw_only=True)
class Lexical:
    """Lexical index: the words and phrases of the query and of the model, matched with docids and text."""

    docids: bool = setting(True, "match them with all docids of a document together")
    text: bool = setting(True, "match them with the document's text too")
    expansion: int = setting(200, "number of slot 0's best tokens to match", 0, 2**31)


@dataclass(frozen=True, kw_only=True)
class Fuse:
    """Fusion with other retrievers; their weights are tuned on the dev split."""

    dense: bool = setting(True, "add the encoder's similarity of query and docid")
    text_vectors: int = setting(
        2,
        "add the encoder's similarity of query and text: maximum number of vectors per document, one for every 80 "
        "words of text; 0: none",
        0,
        64,
    )
    margin: float = setting(
        0.005,
        "keep dense and text vectors only if each raises cross-validated dev MRR@10 by this share; 0: keep both",
        0,
        1,
    )
    depth: int = setting(200, "documents of each ranking that are fused", 1, 2**31)
    nearest: int = setting(
        1_000_000,
        "maximum number of vectors for which the nearest ones add candidates; with more vectors they only re-rank",
        0,
        HUGE,
    )
    dev_queries: int = setting(1000, "maximum number of dev queries for tuning the weights", 1, HUGE)
    hold_out: int = setting(
        500,
        "maximum number of docids that serve as dev queries where the corpus has no dev split; they are added to the "
        "index at the end. 0: none",
        0,
        HUGE,
    )


@dataclass(frozen=True, kw_only=True)
class ShortlistSettings:
    """The shortlist: the part of the vocabulary scored for a query, the union of its k nearest of m token lists."""

    learn: bool = setting(
        True,
        "build the lists, from the tokens of similar docids (composed score) or by learning; false: score the whole "
        "vocabulary",
    )
    m: int = setting(0, "number of lists; 0: derived from the number of docids and tokens", 0, 2**24)
    r: int = setting(
        0,
        "maximum number of tokens per list; 0: no limit (composed score), or derived from the size of the vocabulary",
        0,
        2**31,
    )
    k: int = setting(
        0,
        "lists per query; 0: as the dev split selects (composed score), or derived from the size of the vocabulary",
        0,
        2**24,
    )
    minutes: float = setting(
        2.0, "maximum time for learning the lists (score probability); 0: no limit, reproducible lists", 0, 1e6
    )


@dataclass(frozen=True, kw_only=True)
class Serve:
    """The files of the index from which searches run without torch."""

    rows: str = setting(
        "int8",
        "format of the phrase rows on disk and in memory. int8: with one scale per row; the others are larger and "
        "slower",
        words=("int8", "float16", "bfloat16", "float32"),
    )
    encoder: str = setting(
        "auto",
        "precision of the encoder's weights. int8 is fastest, int8-blocks is closer to fp32; auto: the fastest whose "
        "dev MRR@10 stays within 0.5 %",
        words=("auto", "fp32", "int8", "int8-blocks"),
    )
    spelling: str = setting(
        "auto",
        "correct query words that neither the corpus nor the encoder knows. auto: unless it lowers dev MRR@10 by more "
        "than 0.5 %; off: never, and no lexicon is written",
        words=("auto", "on", "off"),
    )
    keep_model: bool = setting(
        False,
        "also store the torch model, which searches on a GPU and pixnar shortlist need; it doubles the index",
    )


@dataclass(frozen=True, kw_only=True)
class Naming:
    """Docids for a corpus without any, generated from titles and text; `pixnar docids` has more options."""

    headings: int = setting(10, "maximum number of headings per document, in addition to its title", 0, HUGE)
    sentences: int = setting(8, "maximum number of key sentences per document", 0, HUGE)
    phrases: int = setting(5, "maximum number of key phrases per document", 0, HUGE)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a fit, by section; `Recipe()` has the defaults."""

    vocab: Vocab = Vocab()
    model: Model = Model()
    train: Train = Train()
    scoring: Scoring = Scoring()
    lexical: Lexical = Lexical()
    fuse: Fuse = Fuse()
    shortlist: ShortlistSettings = ShortlistSettings()
    serve: Serve = Serve()
    naming: Naming = Naming()
