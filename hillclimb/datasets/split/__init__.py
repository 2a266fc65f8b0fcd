"""Splits the tasks of a version into train and eval."""
