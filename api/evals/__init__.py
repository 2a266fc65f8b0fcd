"""Figures read from outcomes: summaries for events, eval tables, and the before/after report."""
