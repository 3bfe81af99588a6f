"""base: errors, files, progress, packed strings, the normaliser, the hub: what every room stands on."""
