"""Selects the rows of a version: filters, duplicates, exclusions."""
