"""Limits of what one caller, or one address, may send to a process."""
