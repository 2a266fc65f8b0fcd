"""What a run left in the blob store: trajectories, checkpoints, logs."""
