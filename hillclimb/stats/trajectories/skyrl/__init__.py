"""SkyRL's dumps of evaluations: rows, their conversations, and the metrics that go with them."""
