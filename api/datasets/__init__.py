"""Datasets: immutable versions of tasks with their split, and what is kept out of them."""
