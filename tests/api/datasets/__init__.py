"""Tests of the datasets domain."""
