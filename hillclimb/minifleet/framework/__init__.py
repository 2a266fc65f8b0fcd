"""The parts that every miniature app is built from."""
