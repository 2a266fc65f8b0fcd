"""Statistics of experiments: families of runs, and the metrics that decide a hypothesis."""
