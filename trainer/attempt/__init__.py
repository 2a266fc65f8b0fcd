"""An attempt of a run as a process: context, stop signal, deadlines, event sinks."""
