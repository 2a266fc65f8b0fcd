"""Admission: turns a spec into a run, or rejects it with a reason."""
