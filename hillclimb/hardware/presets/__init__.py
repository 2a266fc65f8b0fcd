"""Presets: whole specs of earlier runs."""
