"""The optimizer step: clipping, learning rate, metrics, throughput."""
