"""Routes of the results of runs."""
