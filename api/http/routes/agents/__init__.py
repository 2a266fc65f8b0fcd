"""Routes that trainers, runners and cluster nodes call."""
