"""Groups of rollouts: collection, buffer, staleness, resampling."""
