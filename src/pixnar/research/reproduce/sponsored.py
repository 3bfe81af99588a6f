"""Sponsored search: find the keywords of what a query wants, many of them."""

from __future__ import annotations

from functools import partial

import numpy as np

from pixnar.evaluation.baselines import open_retriever
from pixnar.research.reproduce import paper
from pixnar.research.reproduce.keywords import as_keywords
from pixnar.research.reproduce.report import Grid, Report, bars, better, paper_grid, percent, quality
from pixnar.research.reproduce.study import Judged, Study
from pixnar.research.reproduce.systems import baselines

_MEASURES = ("P@100", "P@10", "R@100", "MRR@10")


def sponsored(study: Study) -> Report:
    """Query to keyword: every docid is a document of its own, all those of a relevant document are wanted."""
    study.expect(4)
    corpus = as_keywords(study.corpus, seed=study.plan.seed)
    pieces = study.word_pieces(corpus=corpus)
    phrases = study.phrases(study.plan.size, corpus=corpus)
    rows: dict[str, Judged] = {}
    for label, folder in baselines(study, corpus=corpus, tuned=False)[0].items():
        opened = partial(open_retriever, folder, threads=study.plan.threads)
        rows[label] = study.judged(label, folder.name, opened, measures=_MEASURES, corpus=corpus)
    for label, folder in (("CLOVERv2", pieces), ("PIXNAR, the model alone", phrases)):
        rows[label] = study.judged_index(label, folder, measures=_MEASURES, corpus=corpus)
    clover, ours = rows["CLOVERv2"], rows["PIXNAR, the model alone"]
    grid = Grid(["system", *_MEASURES, "P@100 against CLOVERv2"])
    for label, row in rows.items():
        grid.rows.append((label, *quality(row, _MEASURES), None if row is clover else better(row, clover, "P@100")))
    wanted = np.array(ours.relevant)
    most = float(np.minimum(wanted, 100).mean() / 100)
    return Report(
        "sponsored",
        "Sponsored search: from a query to keywords",
        [grid, paper_grid("The paper, a billion keywords", ["system", "P@100"], paper.SPONSORED)],
        [
            f"P@100 cannot pass {percent(most)} here: a query has {wanted.mean():.1f} relevant keywords, so the "
            "column says more by comparison than by itself.",
            f"PIXNAR against CLOVERv2: P@100 {better(ours, clover, 'P@100')}; in the paper +23.7 %.",
            "Keywords of one document are train queries of each other; a query wants all those of its documents.",
        ],
        lambda axes: bars(axes, rows, "P@100", study.name),
        {label: {"figures": row.figures} for label, row in rows.items()},
    )
