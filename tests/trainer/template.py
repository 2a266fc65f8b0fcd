"""What `forked` imports once, in the process that its processes are forks of."""

from __future__ import annotations

import gc
from importlib import import_module

MODULES = (
    "trainer.__main__",
    # By the first checkpoint.
    "torch.distributed.checkpoint",
    "torch.utils.serialization",
)

# Nothing of what is imported is garbage: not looking for any saves a sixth of the seconds.
gc.disable()
for name in MODULES:
    import_module(name)
# Collections in a fork do not look at all this either, which would copy its pages.
gc.freeze()
gc.enable()
