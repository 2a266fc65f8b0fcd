"""The stored form of a dataset version: rows, files, digests, lineage."""
