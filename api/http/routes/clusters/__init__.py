"""Routes about rented clusters, clouds and hardware presets."""
