"""What can be set: a frozen dataclass per section, and for each dial its default, its range and what it does."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

HUGE = 2**40


@dataclass(frozen=True)
class Allowed:
    """What a dial may be: a range of numbers (ends included unless `above`), some words, or any text; and its words."""

    about: str
    low: float = -math.inf
    high: float = math.inf
    above: bool = False  # the value must be greater than `low`
    words: tuple[str, ...] = ()
    pattern: str = ""  # a text must match it; `shape` says so in plain words
    shape: str = ""


def dial(default: Any, about: str, low: float = -math.inf, high: float = math.inf, **rest: Any) -> Any:
    """A field of a section."""
    return field(default=default, metadata={"allowed": Allowed(about, low, high, **rest)})


@dataclass(frozen=True, kw_only=True)
class Vocab:
    """The output vocabulary: what the model can say in one slot."""

    kind: str = dial(
        "phrase",
        "phrase: whole-word phrases (what this project is about); the others are sub-word rivals",
        words=("phrase", "wordpiece", "bpe", "unigram"),
    )
    size: int = dial(131072, "tokens at most; more is better and slower (the paper goes to 5 million)", 512, 2**31)
    min_count: int = dial(0, "a phrase is used at least so often in the docids; 0: by the size of the corpus", 0, HUGE)
    max_words: int = dial(8, "the longest phrase, in words", 1, 64)


@dataclass(frozen=True, kw_only=True)
class Model:
    """The network: an encoder reads the query, slots answer it, a head has one vector per phrase."""

    encoder: str = dial(
        "sentence-transformers/all-MiniLM-L6-v2",
        "a Hugging Face encoder, by name or folder",
        pattern=r"\S(.*\S)?",
        shape="the name or folder of a Hugging Face encoder",
    )
    slots: int = dial(0, "output positions; 0: enough for 99 % of the docids and their end, at most 32", 0, 512)
    slot_design: str = dial(
        "mlp",
        "mlp: query vector and slot vector through a small network; mask: mask tokens in the encoder's input",
        words=("mlp", "mask"),
    )
    head: str = dial(
        "solved",
        "where phrase rows start: solved: rows that add up to the encoder's vectors of the docids; encoder: its vector "
        "of the phrase alone; random: the paper",
        words=("solved", "encoder", "random"),
    )
    pieces: bool = dial(
        True, "while training, phrases also share the rows of their word pieces (head solved); written out for search"
    )
    ridge: float = dial(1.0, "how strongly solved rows are kept small", 0, 1e6, above=True)
    bias: bool = dial(True, "one more number per phrase, which starts at how frequent it is")
    hidden: int = dial(1024, "width of the slots' network (slot_design mlp)", 1, 65536)
    max_pieces: int = dial(64, "the encoder reads so many word pieces of an input; the rest is cut off", 4, 8192)
    vectors: str = dial(
        "auto",
        "the encoder's weights when the vectors of docids, phrases and queries are computed on a CPU: int8 is about "
        "twice as fast as fp32; auto: int8 if dense dev MRR@10 on a sample stays within 0.5 %",
        words=("auto", "fp32", "int8"),
    )


@dataclass(frozen=True, kw_only=True)
class Train:
    """Training: how long, how fast, and what is asked of the model."""

    minutes: float = dial(
        0.0,
        "time for training, without the checks on dev; 0: no limit, or, where steps and epochs are 0 too, by the size "
        "of the corpus (2 minutes for 20 thousand docids, 20 for 500 thousand, an hour at most)",
        0,
        1e6,
    )
    steps: int = dial(0, "steps of the optimizer; 0: no limit", 0, HUGE)
    epochs: int = dial(0, "times through all pairs; 0: no limit. The first of the three limits ends the run", 0, HUGE)
    batch: int = dial(128, "pairs that go through the network together", 1, 2**20)
    accumulate: int = dial(1, "batches per step of the optimizer: batch × accumulate pairs decide a step", 1, 2**20)
    learning_rate: float = dial(5e-4, "of the slots' own layers", 0, 1, above=True)
    head_learning_rate: float = dial(1e-3, "of the phrase rows", 0, 1, above=True)
    encoder_learning_rate: float = dial(3e-5, "of the encoder, once it is fine-tuned", 0, 1, above=True)
    warmup: int = dial(50, "steps over which the learning rates rise from 0, at most a tenth of the run", 0, HUGE)
    schedule: str = dial(
        "linear", "after the warm-up: linear: down to 0 at the end; constant", words=("linear", "constant")
    )
    l1: float = dial(1.0, "weight of: slot i says token i of the docid", 0, 1e6)
    l2: float = dial(0.25, "weight of: slot 0 says all tokens of the docid, in any order", 0, 1e6)
    l3: float = dial(1.0, "weight of: (log Z)² is small, so that scores need no sum over the vocabulary", 0, 1e6)
    ranking: float = dial(
        1.0,
        "weight of: the right document scores above others (score probability; the composed score always ranks)",
        0,
        1e6,
    )
    negatives: int = dial(
        3, "documents near to each input that the right one must also beat; 0: only those of the batch", 0, 1024
    )
    rank_against: str = dial(
        "mined",
        "mined: the documents of the batch and the negatives; all: every document, better by the example and slower "
        "by the minute",
        words=("mined", "all"),
    )
    mine_every: int = dial(300, "steps after which the model mines its negatives again", 1, HUGE)
    correct_sampling: bool = dial(
        True,
        "a document that a step draws by chance stands for those it did not draw, so that documents with many docids "
        "are not taught to be wrong (composed score)",
    )
    docids: int = dial(8, "docids of a document that a step looks at; the rest is estimated from them", 1, HUGE)
    teacher: float = dial(0.0, "weight of: the ranking stays near that of a teacher (distillation)", 0, 1e6)
    taught_by: str = dial(
        "hybrid",
        "the teacher: dense: the encoder's own vectors of the docids; hybrid: these and BM25 over the docids",
        words=("dense", "hybrid"),
    )
    slot_examples: int = dial(
        16, "inputs of a batch that also train the slots, by l1 and l3 (composed score)", 1, 2**20
    )
    softmax: str = dial(
        "auto",
        "full: over the whole vocabulary; sampled: over some of it; auto: full while it is cheap",
        words=("auto", "full", "sampled"),
    )
    sample: int = dial(2048, "tokens of the sampled softmax", 1, 2**31)
    optimizer: str = dial(
        "auto",
        "of the phrase rows: adam; rows: Adam with one second moment per phrase, a third of the memory; auto: adam for "
        "the composed score up to 4 GB of rows",
        words=("auto", "adam", "rows"),
    )
    fine_tune: float = dial(
        0.0, "share of the run that also trains the encoder, at its end; before that it is frozen (much faster)", 0, 1
    )
    passages: int = dial(
        20,
        "sentences of a document's own text, at most, that train as queries for it; 0: docids and train queries only",
        0,
        HUGE,
    )
    typos: float = dial(
        0.0, "share of the docids that also train with a typo, so that misspelt queries find what they mean", 0, 1
    )
    per_document: int = dial(
        0,
        "docids of a document that are inputs in an epoch, at most; 0: all, so that documents with many docids are "
        "asked for more often, as by most queries",
        0,
        HUGE,
    )
    self_share: float = dial(0.1, "share of these that should answer with themselves, not with a sibling", 0, 1)
    evaluate_every: int = dial(0, "steps from one evaluation on dev to the next; 0: ten times a stage", 0, HUGE)
    patience: int = dial(4, "evaluations without a new best after which training stops; 0: never", 0, HUGE)
    dev_queries: int = dial(500, "dev queries an evaluation asks, at most; 0: no evaluation", 0, HUGE)
    seed: int = dial(
        0, "the same seed and data give the same run, where steps or epochs limit it, not minutes", 0, 2**63 - 1
    )
    tensorboard: bool = dial(
        False, "also write TensorBoard events to training/tensorboard of the index (needs the extra tensorboard)"
    )
    precision: str = dial(
        "auto",
        "of the arithmetic; auto: bf16 where the device is fast at it, fp32 on a CPU",
        words=("auto", "fp32", "bf16"),
    )
    device: str = dial(
        "auto",
        "auto, cpu, cuda, cuda:1, mps …",
        pattern=r"(auto|cpu|mps|(cuda|xpu)(:\d+)?)",
        shape='"auto", "cpu", "cuda", "cuda:1", "xpu" or "mps"',
    )


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What the score of a docid and of a document is."""

    score: str = dial(
        "composed",
        "composed: products of the query with the phrase rows, summed and divided by the length of the docid's vector; "
        "probability: log probabilities of the tokens, corrected by priors. Training follows it",
        words=("composed", "probability"),
    )
    prior_weight: float = dial(1.0, "how much of a token's log frequency is taken off; 0: the paper's likelihood", 0, 4)
    copy: float = dial(
        0.2,
        "composed: times its idf, what a phrase that stands in the query adds; probability: the share given to such "
        "phrases. 0: none, and none is tried",
        0,
        0.99,
    )
    floor: str = dial(
        "zero",
        "what a token scores at least: zero: nothing; prior: a little below its frequency; strict: docids with a token "
        "outside the shortlist are not found",
        words=("zero", "prior", "strict"),
    )
    order: str = dial(
        "auto",
        "slots: token i is scored by slot i; any: by its best slot; bag: by slot 0; auto: bag with the composed score, "
        "bag or any as the dev split selects with the score probability; slots is never tried",
        words=("auto", "slots", "any", "bag"),
    )
    length_norm: float = dial(0.3, "a docid's score is divided by (its length + 1) to this power", 0, 10)
    aggregate: str | int = dial(
        "logsumexp",
        "a document's score from its docids': max, logsumexp (over all), or a number n: logsumexp over the best n",
        1,
        HUGE,
        words=("max", "logsumexp"),
    )
    scale: float = dial(
        1.0, "token scores are multiplied by it: the larger, the closer logsumexp is to max", 0, 1e6, above=True
    )
    ends: bool = dial(False, "the end of a docid is scored too (score probability, order slots)")
    normalize: bool = dial(True, "divide by Z, the sum over the tokens scored; without it raw logits, as in the paper")
    tune: bool = dial(
        True,
        "choose copy, aggregate and scale on dev, from the values here, and with the score probability also order, "
        "prior_weight and length_norm",
    )
    tune_queries: int = dial(400, "dev queries on which they are chosen, at most", 1, HUGE)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Phrases as plain evidence: the model's words, matched with all a document says."""

    docids: bool = dial(True, "match them with all docids of a document taken together")
    text: bool = dial(True, "match them with the document's text as well")
    expansion: int = dial(200, "best tokens of slot 0 that are matched", 0, 2**31)


@dataclass(frozen=True, kw_only=True)
class Fuse:
    """Other retrievers whose scores are added; their weights are chosen on dev."""

    dense: bool = dial(True, "the encoder's own similarity of query and docid")
    text_vectors: int = dial(
        2,
        "its similarity of query and text: vectors of a document's text at most, one for every 80 words; 0: none",
        0,
        64,
    )
    bm25: bool = dial(True, "BM25 over docids and text")
    margin: float = dial(
        0.005,
        "dense, text and BM25 are kept only where each raises cross-validated dev MRR@10 by this share; 0: keep all",
        0,
        1,
    )
    depth: int = dial(200, "documents of each list that are fused", 1, 2**31)
    nearest: int = dial(
        1_000_000, "vectors at most among which the nearest are candidates; with more, vectors only re-rank", 0, HUGE
    )
    dev_queries: int = dial(1000, "dev queries on which the weights are chosen, at most", 1, HUGE)
    hold_out: int = dial(
        500,
        "docids that serve as dev queries where the corpus has no dev split, at most; they are added to the index at "
        "the end. 0: none",
        0,
        HUGE,
    )


@dataclass(frozen=True, kw_only=True)
class Shortlist:
    """The part of the vocabulary that is scored for a query: m lists of tokens, of which the k nearest are used."""

    learn: bool = dial(
        True,
        "make the lists, of the tokens of similar docids (composed score) or learned; without it every token of the "
        "vocabulary is scored",
    )
    m: int = dial(0, "lists; 0: by the number of docids and the size of the vocabulary", 0, 2**24)
    r: int = dial(
        0, "tokens per list, at most; 0: no limit (composed score), or by the size of the vocabulary", 0, 2**31
    )
    k: int = dial(
        0, "lists used for a query; 0: as dev selects (composed score), or by the size of the vocabulary", 0, 2**24
    )
    minutes: float = dial(
        2.0, "time for learning lists at most (score probability); 0: no limit, the same lists every time", 0, 1e6
    )


@dataclass(frozen=True, kw_only=True)
class Serve:
    """What the index ships for searching without torch."""

    rows: str = dial(
        "int8",
        "phrase vectors on disk and in memory: int8 with one scale each; the others are larger and slower",
        words=("int8", "float16", "bfloat16", "float32"),
    )
    encoder: str = dial(
        "auto",
        "the encoder's weights; int8 is the fastest, int8-blocks nearer to fp32; auto: the first of them with which "
        "dev MRR@10 stays within 0.5 %",
        words=("auto", "fp32", "int8", "int8-blocks"),
    )
    spelling: str = dial(
        "auto",
        "correct query words that neither the corpus nor the encoder knows; auto: unless that costs more than 0.5 % of "
        "dev MRR@10; off: no lexicon is written",
        words=("auto", "on", "off"),
    )
    keep_model: bool = dial(True, "also ship the model as torch knows it: for a GPU, and for training further")


@dataclass(frozen=True, kw_only=True)
class Naming:
    """Docids for a corpus that has none, made of its titles and text. `pixnar docids` has more ways."""

    headings: int = dial(10, "headings of a document, beside its title", 0, HUGE)
    sentences: int = dial(8, "key sentences of a document", 0, HUGE)
    phrases: int = dial(5, "key phrases of a document", 0, HUGE)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All sections; `Recipe()` is the default."""

    vocab: Vocab = Vocab()
    model: Model = Model()
    train: Train = Train()
    scoring: Scoring = Scoring()
    evidence: Evidence = Evidence()
    fuse: Fuse = Fuse()
    shortlist: Shortlist = Shortlist()
    serve: Serve = Serve()
    naming: Naming = Naming()
