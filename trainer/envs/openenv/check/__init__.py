"""Checks of a running OpenEnv server, before a run depends on it."""
