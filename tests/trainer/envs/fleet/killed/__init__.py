"""Trainers that are killed while a platform creates, and what their runner sweeps afterwards."""
