"""Machines rented for runs: which will do, their rows, what they cost, who is let in from them."""
