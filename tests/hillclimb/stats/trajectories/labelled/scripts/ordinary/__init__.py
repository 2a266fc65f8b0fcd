"""Rollouts without a scripted pattern: successes and wrong final states."""
