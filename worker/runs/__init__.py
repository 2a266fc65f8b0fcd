"""Reconciles runs: drives them, relays their events, reaps the orphaned."""
