"""Deletion of runs and projects: who may request it, what refuses it, what is kept."""
