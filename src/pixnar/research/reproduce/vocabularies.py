"""Tables 2, 3 and 6: what kind of vocabulary, how large, and how long docids are in it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pixnar.evaluation.measures import DEFAULT
from pixnar.evaluation.queries import read_queries
from pixnar.index import Index
from pixnar.recipe import CLOVER, override
from pixnar.research.reproduce import paper
from pixnar.research.reproduce.cost import kept_costs
from pixnar.research.reproduce.report import Grid, Report, bars, better, paper_grid, percent, quality
from pixnar.research.reproduce.study import Judged, Study
from pixnar.vocab.inspect import inspect
from pixnar.vocab.phrases import FIXED_TOKENS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def table2(study: Study) -> Report:
    """Word-pieces, BPE, Unigram and phrases at equal size."""
    study.expect(4)
    rows = {label: study.judged_index(label, path) for label, path in kinds(study).items()}
    first, best = rows["word-pieces (CLOVERv2)"], rows["phrases"]
    grid = Grid(["vocabulary", "tokens", "tokens per docid", *DEFAULT, "MRR@10 against word-pieces"])
    for label, row in rows.items():
        against = None if row is first else better(row, first)
        grid.rows.append((label, *_sizes(row), *quality(row, DEFAULT), against))
    smallest, largest = (pick(row.facts["vocabulary"] for row in rows.values()) for pick in (min, max))
    rival = max(
        (row for label, row in rows.items() if label not in ("phrases",)), key=lambda row: row.figures["MRR@10"]
    )
    return Report(
        "table2",
        "Table 2: kinds of vocabulary",
        [grid, paper_grid("The paper, MS MARCO, 128 K tokens", ["vocabulary", *DEFAULT], paper.TABLE2)],
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


def table3(study: Study) -> Report:
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
    return Report(
        "table3",
        "Table 3: larger phrase vocabularies",
        [grid, paper_grid("The paper, MS MARCO", ["tokens", *DEFAULT], paper.TABLE3)],
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


def table6(study: Study) -> Report:
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

    return Report(
        "table6",
        "Table 6: how long docids are in tokens, and how long what is generated",
        [grid, lengths, paper_grid("The paper, MS MARCO", ["vocabulary", "mean", "p99"], paper.TABLE6)],
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
