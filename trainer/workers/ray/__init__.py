"""Workers of a run in processes of their own, by Ray. Only this folder imports Ray."""
