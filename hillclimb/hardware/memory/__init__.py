"""Memory estimates of learner, engine and machine, with the arithmetic shown."""
