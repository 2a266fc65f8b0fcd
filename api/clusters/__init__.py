"""Machines that are rented for runs: which of them will do, and what they cost."""
