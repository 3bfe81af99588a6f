"""Phrases against word pieces at equal training: quality and cost, slot by slot and with the composed score."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from pixnar.evaluation.measures import DEFAULT
from pixnar.recipe.clover import SLOT_BY_SLOT
from pixnar.research.reproduce.cost import DOCUMENTS, Cost, kept_costs
from pixnar.research.reproduce.report import Grid, Report, bars, better, quality
from pixnar.research.reproduce.study import Judged, Study

PIECES, PHRASES, SHARED = "word pieces (CLOVERv2)", "phrases", "phrases with rows of word pieces"
SLOTS, COMPOSED = "slot by slot", "composed"


def phrases(study: Study) -> Report:
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
    return Report(
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
