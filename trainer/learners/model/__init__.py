"""The policy module: transformer, adapters, sharding, log-probabilities."""
