"""Scripts: one file per pattern, with its positives and its near misses."""
