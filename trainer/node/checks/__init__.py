"""Node checks: GPUs, disk, all-reduce, and the whole gang before training."""
