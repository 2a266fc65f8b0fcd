"""Wake-ups and server-sent events: one LISTEN per process, one read per run, shared bytes.

`serving` has the processes themselves.
"""
