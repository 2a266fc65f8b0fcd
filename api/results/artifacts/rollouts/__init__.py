"""Rollouts beyond their list: groups, files in bulk, and the tokens of one."""
