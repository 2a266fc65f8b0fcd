"""Routes of rollouts: outcomes, trajectories, tokens."""
