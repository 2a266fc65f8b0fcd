"""Refusals in the words of other platforms, by reason."""
