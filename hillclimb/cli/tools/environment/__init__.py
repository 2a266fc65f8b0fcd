"""Commands about an environment of one's own: write a first one, check a running one."""
