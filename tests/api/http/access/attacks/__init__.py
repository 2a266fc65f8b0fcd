"""Attacks that were tried on another project, a section of docs/threat-model.md each."""
