"""Exports: results in the layouts that other tools read."""
