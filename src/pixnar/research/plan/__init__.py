"""plan: how large a corpus is comes in; what every stage of it needs in memory, on disk and in time comes out."""

from pixnar.research.plan.scale import Scale
from pixnar.research.plan.stages import Plan, Stage, plan

__all__ = ["Plan", "Scale", "Stage", "plan"]
