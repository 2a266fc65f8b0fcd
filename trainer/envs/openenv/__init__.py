"""Environments behind any OpenEnv server."""
