"""The protocol between trainer and service: events, outcomes, launch plans, file names."""
