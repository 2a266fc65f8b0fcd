"""Commands that submit a run: a spec, an evaluation, a fork."""
