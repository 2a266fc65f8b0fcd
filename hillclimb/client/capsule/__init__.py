"""Reads capsules of runs, which may come from another installation."""
