"""Commands that read what a run measured: verdicts, comparison, signal."""
