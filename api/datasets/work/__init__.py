"""Work on large files, in a process of its own with bounded memory and time."""
