"""Access to the rows: principals and their keys, and repeated requests."""
