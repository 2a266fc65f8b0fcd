"""Trajectories as conversations, for analysis: the same view of our rollouts and imported ones."""
