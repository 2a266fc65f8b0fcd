"""Tests of what the operator does not allow."""
