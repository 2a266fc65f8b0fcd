"""Statistics: pass rates, paired tests, verdicts, power."""
