"""Deletes what deleted runs and projects have: blobs, then rows, in batches that may be cut."""
