"""Datasets: immutable versions of tasks with their split, and their exclusions."""
