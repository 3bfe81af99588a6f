"""distributed: shards of a corpus or an index come in; the files and hits of one machine go out, made by Ray."""
