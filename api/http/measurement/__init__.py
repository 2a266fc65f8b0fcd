"""Measurements of the service for Prometheus: requests of this process, and stored state."""
