"""Tests of pages about one run."""
