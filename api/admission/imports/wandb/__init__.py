"""The history of a W&B run as an imported run: metrics alone."""
