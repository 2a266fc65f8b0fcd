"""The shell: names of runs and their completion, commands that were meant, sign-in, first specs."""
