"""Tables 2, 3 and 6, and phrases against word pieces: vocabularies by kind and size, in quality and cost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pixnar.evaluation.measures import DEFAULT
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.recipe import CLOVER, override
from pixnar.recipe.presets import SLOT_BY_SLOT
from pixnar.research.reproduce.report import (
    PAPER_TABLE2,
    PAPER_TABLE3,
    PAPER_TABLE6,
    Grid,
    StudyReport,
    bars,
    better,
    paper_grid,
    percent,
    quality,
)
from pixnar.research.reproduce.study import Judged, Study
from pixnar.search import SlotScores
from pixnar.table import DocidTable
from pixnar.vocab.inspect import inspect
from pixnar.vocab.phrases import FIXED_TOKENS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCUMENTS = 100  # that decoding is asked for
_REPEATS = 5
_WARM_UP = 10  # queries

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Cost:
    """What searching an index by docids alone costs, as means over queries; one thread, every token scored.

    `postings` counts the places in docids whose token scores above its floor there: what an engine without bounds
    reads. `work` is what the engine reports: rows and nodes that it looked at.
    """

    slots: int
    tokens_per_docid: float
    tokens_scored: int  # for every slot that counts
    postings: float
    work: float
    engines: list[str]  # those that decoding took
    score_ms: float
    decode_ms: float
    decode_p99_ms: float
    table_bytes_per_docid: float  # docids and their index, without spellings and titles
    row_bytes: int
    row_bytes_per_docid: float


def measure_costs(
    indexes: Mapping[str, Index], texts: Sequence[str], *, k: int = DOCUMENTS, repeats: int = _REPEATS
) -> dict[str, Cost]:
    """The cost of several indexes, each query asked of all of them in turn; a time is the best of `repeats`.

    Times are CPU time of this thread, which does all the work. On a busy machine longer calls are interrupted more
    often, so wall-clock time would exaggerate the difference.
    """
    queries = {label: index.queries(texts) for label, index in indexes.items()}
    counts = {label: occurrences(index.table, index.ranker.scorer.slots) for label, index in indexes.items()}
    for label, index in indexes.items():
        for query in queries[label][:_WARM_UP]:
            index.ranker.decode(index.ranker.scored(query), k)
    measured = {label: np.zeros((len(texts), 4)) for label in indexes}  # seconds of both parts, postings, work
    engines: dict[str, set[str]] = {label: set() for label in indexes}
    for i in range(len(texts)):
        times = np.full((repeats, len(indexes), 2), np.inf)
        for repeat in range(repeats):
            for place, (label, index) in enumerate(indexes.items()):
                scorer = index.ranker.scorer
                began = time.thread_time()
                scored = index.ranker.scored(queries[label][i])
                between = time.thread_time()
                found = index.ranker.decoder.documents(
                    scored, k, aggregate=scorer.rule.aggregate, order=scorer.order, length_norm=scorer.rule.length_power
                )
                times[repeat, place] = between - began, time.thread_time() - between
                engines[label].add(found.engine)
                postings = count_postings(scored, counts[label], by_slot=scorer.order == "slots")
                measured[label][i, 2:] = postings, found.work
        for label, best in zip(indexes, times.min(axis=0), strict=True):
            measured[label][i, :2] = best
    out = {}
    for label, index in indexes.items():
        table, sizes = index.table, index.table.sizes
        docids = max(1, table.snapshot().table.rows)
        score, decode, postings, work = measured[label].mean(axis=0).tolist()
        out[label] = Cost(
            slots=index.ranker.scorer.slots,
            tokens_per_docid=float(index.manifest["facts"]["tokens_per_docid"]),
            tokens_scored=index.rows.count - 1,
            postings=postings,
            work=work,
            engines=sorted(engines[label]),
            score_ms=1e3 * score,
            decode_ms=1e3 * decode,
            decode_p99_ms=1e3 * float(np.percentile(measured[label][:, 1], 99)),
            table_bytes_per_docid=(sizes["docids"] + sizes["index"]) / docids,
            row_bytes=index.rows.nbytes,
            row_bytes_per_docid=index.rows.nbytes / docids,
        )
    return out


def kept_costs(study: Study, folders: Mapping[str, Path]) -> dict[str, Cost]:
    """The cost of some indexes of a study by docids alone; measured once and kept with its figures."""

    def measured() -> dict[str, Any]:
        study.say(f"{study.name}: measuring what decoding costs")
        opened = {label: study.opened(folder, "docids", threads=1) for label, folder in folders.items()}
        texts = read_queries(study.corpus, "dev", study.plan.timed).texts
        return {label: asdict(cost) for label, cost in measure_costs(opened, texts).items()}

    key = [{label: folder.name for label, folder in folders.items()}, study.plan.timed]
    return {label: Cost(**values) for label, values in study.kept("cost of decoding", key, measured).items()}


def occurrences(table: DocidTable, slots: int) -> Counts:
    """How many docids have a token at a place [slots, V]; places beyond the slots do not count."""
    counts = np.zeros((slots, table.vocab_size), np.int64)
    by_place: list[list[int]] = [[] for _ in range(slots)]
    for tokens, _ in table:
        for place, token in enumerate(tokens[:slots]):
            by_place[place].append(token)
    for place, ids in enumerate(by_place):
        counts[place] = np.bincount(np.array(ids, np.int64), minlength=table.vocab_size)
    return counts


def count_postings(scores: SlotScores, counts: Counts, *, by_slot: bool) -> int:
    """Occurrences of the tokens that a query scores above their floor; in any order slot 0 stands for all places."""
    if by_slot:
        named = [scores.tokens[begin:end] for begin, end in pairwise(scores.offsets.tolist())]
        return int(sum(row[ids].sum() for row, ids in zip(counts, named, strict=True)))
    return int(counts[:, scores.tokens].sum())


WORD_PIECES = "word-pieces"
SHARES = (32, 8, 2, 1)  # of the largest vocabulary, as divisors
_GENERATED = 10  # docids of a query whose words are counted
_ASKED = 500


def kinds(study: Study) -> dict[str, Path]:
    """An index for each kind of vocabulary, all with as many tokens as the encoder has word pieces."""
    pieces = study.word_pieces()
    size = max(FIXED_TOKENS, _size(study, pieces))
    made = {"word-pieces (CLOVERv2)": pieces}
    for label, kind in (("BPE", "bpe"), ("Unigram", "unigram")):
        made[label] = study.index(label, study.recipe(override(CLOVER, [f"vocab.kind={kind}", f"vocab.size={size}"])))
    return made | {"phrases": study.phrases(size)}


def sizes(study: Study) -> dict[int, Path]:
    """An index for each size of a phrase vocabulary, from small to large."""
    largest = study.phrases(study.plan.size)
    most = _size(study, largest)
    wanted = [max(FIXED_TOKENS, most // share) for share in SHARES]
    made = {size: study.phrases(size) for size in wanted[:-1] if size < most}
    return {_size(study, path): path for path in made.values()} | {most: largest}


def table2(study: Study) -> StudyReport:
    """Word-pieces, BPE, Unigram and phrases at equal size."""
    study.expect(4)
    rows = {label: study.judged_index(label, path) for label, path in kinds(study).items()}
    first, best = rows["word-pieces (CLOVERv2)"], rows["phrases"]
    grid = Grid(["vocabulary", "tokens", "tokens per docid", *DEFAULT, "MRR@10 against word-pieces"])
    for label, row in rows.items():
        against = None if row is first else better(row, first)
        grid.rows.append((label, *_sizes(row), *quality(row, DEFAULT), against))
    smallest, largest = (pick(row.facts["vocabulary"] for row in rows.values()) for pick in (min, max))
    rival = max((row for label, row in rows.items() if label != "phrases"), key=lambda row: row.figures["MRR@10"])
    return StudyReport(
        "table2",
        "Table 2: kinds of vocabulary",
        [grid, paper_grid("The paper, MS MARCO, 128 K tokens", ["vocabulary", *DEFAULT], PAPER_TABLE2)],
        [
            f"Phrases against the best of the others ({rival.label}): MRR@10 {better(best, rival)}; in the paper "
            "+13.7 % against Unigram, +18.0 % against the encoder's own word-pieces.",
            "The composed score, solved rows and training by ranking documents for every row; no copy term, no rows "
            "shared by word pieces, docids alone, every token scored. The settings of the score are chosen "
            "on dev for each row.",
            f"As many tokens as the encoder has word pieces were wanted for each; there are {smallest:,} to {largest:,}"
            + (", since the corpus yields no more." if smallest < 0.95 * largest else "."),
        ],
        lambda axes: bars(axes, rows, "MRR@10", study.name),
        _data(rows),
    )


def table3(study: Study) -> StudyReport:
    """Phrase vocabularies from small to as large as the corpus allows."""
    study.expect(len(SHARES) + 1)
    study.word_pieces()
    folders = sizes(study)
    rows = {size: study.judged_index(f"phrases, {size:,}", path) for size, path in folders.items()}
    pieces = study.judged_index("word-pieces (CLOVERv2)", study.word_pieces())
    costs = kept_costs(study, {f"{size}": path for size, path in folders.items()} | {WORD_PIECES: study.word_pieces()})
    smallest, largest = rows[min(rows)], rows[max(rows)]
    grid = Grid(
        ["tokens", "slots", "tokens per docid", *DEFAULT, "MRR@10 against the smallest", "postings", "ms, decoding"]
    )
    labelled = {f"{size}": row for size, row in rows.items()} | {WORD_PIECES: pieces}
    for label, row in labelled.items():
        against = None if row is smallest else better(row, smallest)
        name = f"{int(label):,}" if label != WORD_PIECES else f"{row.facts['vocabulary']:,} ({WORD_PIECES})"
        cost = costs[label]
        spent = f"{cost.postings:,.0f}", f"{cost.decode_ms:.3f}"
        facts = f"{row.facts['slots']}", f"{row.facts['tokens_per_docid']:.2f}"
        grid.rows.append((name, *facts, *quality(row, DEFAULT), against, *spent))

    def plot(axes: Axes) -> None:
        x = list(rows)
        for name in ("MRR@10", "R@100"):
            y = [100 * row.figures[name] for row in rows.values()]
            spread = [
                [100 * abs(row.interval(name)[side] - row.figures[name]) for row in rows.values()] for side in (0, 1)
            ]
            line = axes.errorbar(x, y, spread, marker="o", capsize=3, label=f"phrases, {name}")
            axes.axhline(100 * pieces.figures[name], ls=":", color=line[0].get_color(), label=f"word-pieces, {name}")
        axes.set(xscale="log", xlabel="tokens of the vocabulary", ylabel=f"{study.plan.split}, %", title=study.name)
        axes.legend(fontsize=8)

    factor = max(rows) / min(rows)
    return StudyReport(
        "table3",
        "Table 3: larger phrase vocabularies",
        [grid, paper_grid("The paper, MS MARCO", ["tokens", *DEFAULT], PAPER_TABLE3)],
        [
            f"{factor:.0f} times as many tokens: MRR@10 {better(largest, smallest)}, "
            f"R@100 {better(largest, smallest, 'R@100')}; in the paper 39 times as many gave +12.0 % and +5.3 %.",
            f"The largest vocabulary against word-pieces: MRR@10 {better(largest, pieces)}.",
            "The composed score; no row of phrases shares those of word pieces. Cost as in the table `phrases`: exact "
            "decoding, one thread, all vocabularies in turns.",
        ],
        plot,
        {
            label: data
            | {
                "cost": asdict(costs[label]),
                "p": None if labelled[label] is smallest else labelled[label].p_value(smallest, "MRR@10"),
            }
            for label, data in _data(labelled).items()
        },
    )


def table6(study: Study) -> StudyReport:
    """Tokens per docid by vocabulary, and how many words the docids have that are generated."""
    study.expect(len(SHARES) + 4)
    grid = Grid(["vocabulary", "tokens", "mean tokens per docid", "p99"])
    paths = {**kinds(study), **{f"phrases, {size:,}": path for size, path in sizes(study).items()}}
    data = {}
    for label, path in paths.items():
        told = inspect(study.opened(path).table.vocabulary, top=0)
        data[label] = {"tokens": told.size, "mean": told.mean_length, "p99": told.p99_length}
        grid.rows.append((label, told.size, f"{told.mean_length:.2f}" if told.mean_length else None, told.p99_length))
    texts = read_queries(study.corpus, "dev", _ASKED).texts
    words = {
        "CLOVERv2": _words(study.opened(study.word_pieces()), texts),
        "PIXNAR": _words(study.opened(study.phrases(study.plan.size)), texts),
    }
    lengths = Grid(
        ["model", "mean words", "median", "one or two words"], title=f"Words of the {_GENERATED} best docids"
    )
    for label, counts in words.items():
        lengths.rows.append(
            (label, f"{counts.mean():.2f}", float(np.median(counts)), f"{percent(float(np.mean(counts < 3)))} %")
        )
    data["words"] = {label: np.bincount(counts).tolist() for label, counts in words.items()}

    def plot(axes: Axes) -> None:
        longest = int(max(np.percentile(counts, 99.5) for counts in words.values()))
        for label, counts in words.items():
            share = np.bincount(np.minimum(counts, longest), minlength=longest + 1) / len(counts)
            axes.step(range(longest + 1), 100 * share, where="mid", label=label)
        axes.set(xlabel="words of a generated docid", ylabel="% of docids", title=study.name)
        axes.legend()

    return StudyReport(
        "table6",
        "Table 6: how long docids are in tokens, and how long what is generated",
        [grid, lengths, paper_grid("The paper, MS MARCO", ["vocabulary", "mean", "p99"], PAPER_TABLE6)],
        [f"Generated for {len(texts):,} dev queries, each the {_GENERATED} best docids."],
        plot,
        data,
    )


def _size(study: Study, folder: Path) -> int:
    return int(study.opened(folder).table.vocab_size)


def _sizes(row: Judged) -> tuple[int, str]:
    return row.facts["vocabulary"], f"{row.facts['tokens_per_docid']:.2f}"


def _words(index: Index, texts: list[str]) -> NDArray[np.int64]:
    return np.array([len(one.docid.split()) for text in texts for one in index.generate(text, _GENERATED)])


def _data(rows: dict[str, Judged]) -> dict[str, dict[str, Any]]:
    return {
        label: {"figures": row.figures, "interval": row.interval("MRR@10"), "facts": row.facts}
        for label, row in rows.items()
    }


PIECES, PHRASES, SHARED = "word pieces (CLOVERv2)", "phrases", "phrases with rows of word pieces"
SLOTS, COMPOSED = "slot by slot", "composed"


def phrases(study: Study) -> StudyReport:
    """CLOVERv2 and the largest phrase vocabulary under both scores; the vocabulary is the only change in each."""
    study.expect(5)
    size = study.plan.size
    folders: dict[tuple[str, str], Path] = {
        (SLOTS, PIECES): study.word_pieces(*SLOT_BY_SLOT),
        (SLOTS, PHRASES): study.phrases(size, *SLOT_BY_SLOT),
        (COMPOSED, PIECES): study.word_pieces(),
        (COMPOSED, PHRASES): study.phrases(size),
        (COMPOSED, SHARED): study.phrases(size, "model.pieces=true"),
    }
    rows = {key: study.judged_index(", ".join(reversed(key)), folder) for key, folder in folders.items()}
    costs = {
        score: kept_costs(study, {key[1]: folders[key] for key in folders if key[0] == score}) for score, _ in folders
    }
    table = Grid(["score", "vocabulary", "tokens", *DEFAULT, "MRR@10 against word pieces"])
    spent = Grid(
        ["score", "vocabulary", "slots", "tokens per docid", "postings", "engine's work", "ms, decoding", "p99",
         "ms, scoring", "table, bytes per docid", "rows, bytes per docid"],
        title=f"Cost of a query: exact decoding of the {DOCUMENTS} best documents",
    )  # fmt: skip
    for (score, vocabulary), row in rows.items():
        against = None if vocabulary == PIECES else better(row, rows[score, PIECES])
        table.rows.append((score, vocabulary, row.facts["vocabulary"], *quality(row, DEFAULT), against))
        spent.rows.append((score, vocabulary, *_shown(costs[score][vocabulary])))
    labelled = {f"{vocabulary}, {score}": row for (score, vocabulary), row in rows.items()}
    return StudyReport(
        "phrases",
        "Phrases against word pieces: quality and cost",
        [table, spent],
        [*_gains(rows, costs), *_explained(study)],
        lambda axes: bars(axes, labelled, "MRR@10", study.name),
        {
            f"{vocabulary}, {score}": {
                "figures": row.figures,
                "interval": row.interval("MRR@10"),
                "facts": row.facts,
                "p": None if vocabulary == PIECES else row.p_value(rows[score, PIECES], "MRR@10"),
                "cost": asdict(costs[score][vocabulary]),
                "queries": len(row.queries),
            }
            for (score, vocabulary), row in rows.items()
        },
    )


def _shown(cost: Cost) -> tuple[str, ...]:
    return (
        str(cost.slots),
        f"{cost.tokens_per_docid:.2f}",
        f"{cost.postings:,.0f}",
        f"{cost.work:,.0f} ({', '.join(cost.engines)})",
        f"{cost.decode_ms:.3f}",
        f"{cost.decode_p99_ms:.3f}",
        f"{cost.score_ms:.3f}",
        f"{cost.table_bytes_per_docid:.1f}",
        f"{cost.row_bytes_per_docid:.0f}",
    )


def _gains(rows: dict[tuple[str, str], Judged], costs: dict[str, dict[str, Cost]]) -> list[str]:
    lines = []
    for (score, vocabulary), row in rows.items():
        if vocabulary != PIECES:
            other, own = costs[score][PIECES], costs[score][vocabulary]
            lines.append(
                f"{score}, {vocabulary}: MRR@10 {better(row, rows[score, PIECES])}; decoding "
                f"{other.decode_ms / own.decode_ms:.2f} times as fast, {other.postings / max(own.postings, 1):.2f} "
                "times fewer postings."
            )
    return lines


def _explained(study: Study) -> list[str]:
    return [
        "The paper has +31.0 % with 5 M phrases and +18.0 % with 128 K.",
        "*Slot by slot*: the paper's losses over tokens and its score, token i of a docid by slot i alone, corrected "
        "by priors. *Composed*: training by ranking documents. All start solved and take the same steps and batches.",
        "*Phrases with rows of word pieces* is the default of `pixnar fit`: while training, phrases share the rows of "
        "their word pieces, which are written out for search. The other rows of phrases have none.",
        "No copy term, docids alone, every token scored; the dev split selects the step that is kept and the "
        "settings of the score, for each row.",
        f"Cost: means over {study.plan.timed} dev queries, one thread, the indexes of a score in turns, CPU time, "
        "the best of 5. *Postings*: places in docids whose token scores above its floor. *Work*: rows that the engine "
        "looked at, by its own count.",
    ]
