"""integrations: an index inside other people's software. Each file needs an extra of its own, named like the file."""
