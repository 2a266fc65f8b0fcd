"""Runs: what they are, how their status may change, and the only code that changes it."""
