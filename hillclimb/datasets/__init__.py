"""Datasets: rows, filters, splits, lint and diff, without a database or a network."""
