"""Evidence of `hillclimb accept`: stored for the installation, and read by admission."""
