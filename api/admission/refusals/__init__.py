"""Refuses what the operator of this service does not allow, or cannot rent."""
