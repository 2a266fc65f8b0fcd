"""The engine: one spec in, one run directory out; knows no service."""
