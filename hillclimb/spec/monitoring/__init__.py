"""Sections about watching a run."""
