"""Linear attention over packed prefix groups: the gated delta net of the Qwen3.5 line."""
