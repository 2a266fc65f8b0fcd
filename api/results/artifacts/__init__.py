"""Artifacts in the blob store: trajectories, checkpoints, logs, prompts."""
