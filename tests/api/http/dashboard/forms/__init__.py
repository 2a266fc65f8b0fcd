"""Tests of pages that are forms."""
