"""Tables of runs, their machines, and their results."""
