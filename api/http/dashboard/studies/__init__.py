"""Contents of the pages about several runs: comparisons, experiments, campaigns, issues, signal."""
