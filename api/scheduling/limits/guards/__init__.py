"""Guards of a run: conditions under which it is reported, paused or stopped (docs/guards.md)."""
