"""Routes about runs and their results."""
