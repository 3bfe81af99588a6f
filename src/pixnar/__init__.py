"""PIXNAR: generative retrieval in one transformer pass."""
