"""Experiments: a hypothesis, the runs that test it, and the verdict that their rows give."""
