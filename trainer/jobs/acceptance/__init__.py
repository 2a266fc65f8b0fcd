"""Ladders of `hillclimb accept` that need the data plane: Fleet, Tinker, W&B."""
