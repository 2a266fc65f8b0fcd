"""Grants of agent keys: how many runs, and how much more budget, the owner of a key may spend."""
