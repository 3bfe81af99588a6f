"""Benchmarks that can be run again from the command line: ``pixnar bench …``, or as modules from a checkout.

Each takes corpora, measures every method in its own process, and writes JSON beside a table.
"""
