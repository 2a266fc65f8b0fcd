"""Work on large files, in separate processes with bounded memory and time."""
