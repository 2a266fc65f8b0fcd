"""`hillclimb accept`: the commands, and ladders over the client."""
