"""The process of Socket Mode: one connection to Slack per database, into the same inbox."""
