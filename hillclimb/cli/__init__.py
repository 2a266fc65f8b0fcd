"""The `hillclimb` command: one file per group of verbs."""
