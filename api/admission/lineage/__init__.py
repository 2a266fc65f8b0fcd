"""Runs that come from another run: forked, resumed, continued from a checkpoint."""
