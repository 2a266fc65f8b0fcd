"""Worker groups: engines, learner ranks and rollout workers, local, on Ray or on Tinker."""
