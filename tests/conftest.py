"""Settings for all tests: the machine may be busy, so Hypothesis judges results, not milliseconds."""

from hypothesis import settings

settings.register_profile("pixnar", deadline=None, print_blob=True)
settings.load_profile("pixnar")
