"""The supervisor: starts, watches, restarts and stops services."""
