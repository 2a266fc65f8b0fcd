"""The environment port: tasks, tools, grades, and the errors of a rollout."""
