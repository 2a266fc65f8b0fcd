"""Tests of what learners write and read."""
