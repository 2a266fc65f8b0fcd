"""Records of finished rollouts: trajectory files, outcome rows, operation statistics."""
