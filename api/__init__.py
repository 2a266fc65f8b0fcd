"""The API service: accepts run specs, stores runs, schedules attempts, streams events."""
