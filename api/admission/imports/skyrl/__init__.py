"""SkyRL's dumps of evaluations as an imported run."""
