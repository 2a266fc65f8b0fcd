"""The node: runs on every machine of a rented cluster and manages one attempt's trainer."""
