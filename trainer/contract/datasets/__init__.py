"""Datasets: rows, filters, splits, lint and diff, without a file system, a clock or a network."""
