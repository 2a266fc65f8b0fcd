"""Writes capsules of runs: the facts, the rows, the zip."""
