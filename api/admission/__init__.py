"""Admission: turns a spec into a run, or refuses it with a sentence."""
