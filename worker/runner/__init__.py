"""The runner: owns the trainers of one machine; knows the service only over HTTP."""
