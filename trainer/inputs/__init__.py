"""Inputs of a run: tasks and model files."""
