"""Commands that submit, watch, read and control runs."""
