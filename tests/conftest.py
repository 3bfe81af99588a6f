"""Settings for all tests: the machine may be busy, so Hypothesis judges results, not milliseconds."""

import signal

from hypothesis import settings

settings.register_profile("pixnar", deadline=None, print_blob=True)
settings.load_profile("pixnar")

# A run started in the background ignores Ctrl-C, and its children would inherit that: some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
