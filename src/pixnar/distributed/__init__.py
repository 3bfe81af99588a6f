"""scale: folders of shards come in; the same files as on one machine go out, made by the workers of a Ray cluster."""
