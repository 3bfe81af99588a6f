"""reproduce: the paper's tables on any corpus; models are trained once and shared by all tables. A leaf."""

from pixnar.research.reproduce.run import TABLES, reproduce
from pixnar.research.reproduce.study import StudyPlan

__all__ = ["TABLES", "StudyPlan", "reproduce"]
