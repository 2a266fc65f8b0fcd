"""Context parallelism: several ranks share the tokens of one stream."""
