"""Contents of the pages of one run beyond its first: rollouts, metrics, record, actions."""
