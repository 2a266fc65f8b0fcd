"""Speed of training on GPUs: FLOPs of a model, and the time of a step on paper."""
