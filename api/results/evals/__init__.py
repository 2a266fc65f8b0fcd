"""Evaluations: summaries, tables and the before/after report, computed from outcomes."""
