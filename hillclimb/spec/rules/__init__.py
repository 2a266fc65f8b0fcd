"""Rules over a whole run spec."""
