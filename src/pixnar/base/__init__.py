"""base: what every room stands on: errors, files, progress, packed strings, the normaliser, the hub."""
