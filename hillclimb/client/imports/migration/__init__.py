"""Turns files that were written for other trainers into a run spec: `hillclimb migrate`."""
