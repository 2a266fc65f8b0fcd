"""Trainer processes: launch, identity, redaction, exit report, cleanup."""
