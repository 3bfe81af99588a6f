"""reproduce: the paper's tables on any corpus; models are trained once and shared by all tables. A leaf."""

from pixnar.reproduce.run import TABLES, reproduce
from pixnar.reproduce.study import Plan

__all__ = ["TABLES", "Plan", "reproduce"]
