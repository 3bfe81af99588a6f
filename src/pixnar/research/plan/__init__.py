"""plan: a corpus or its size comes in; what every stage of a fit needs in memory, on disk and in time comes out."""

from pixnar.research.plan.scale import Counts, Scale, count
from pixnar.research.plan.stages import Plan, Stage, plan

__all__ = ["Counts", "Plan", "Scale", "Stage", "count", "plan"]
