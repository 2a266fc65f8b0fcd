"""The served model: base, adapters, losses, samplers."""
