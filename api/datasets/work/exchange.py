"""File names and exit codes that a job's process shares with its caller.

The job imports nothing else of the service: without the spec and its errors it starts in half the
time.
"""

JOB, RESULT = "job.json", "result.json"
"""Its arguments and its result, in its folder."""
OUT_OF_MEMORY, REJECTED, TOO_LONG = 12, 22, 27
"""Exit codes: over its memory, invalid tasks or options, over the size of a decompressed file."""
