"""Hardware: which machines carry a run, whether it fits, and its cost."""
