"""Clusters rented for runs: their rows, costs, budgets, price quotes and node secrets."""
