"""research: a corpus comes in; the paper's tables, a plan of what a fit needs, and the demo go out."""
