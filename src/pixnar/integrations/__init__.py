"""integrations: an index inside other people's software. Each file needs its own extra; nothing here imports another's."""
