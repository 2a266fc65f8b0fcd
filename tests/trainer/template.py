"""What `forked` imports once, in the process that its processes are forks of."""

from __future__ import annotations

from importlib import import_module

from trainer.loading import importing

MODULES = (
    "trainer.__main__",
    "trainer.inline_crew",
    "trainer.learners.models",
    "trainer.engines.choose",
    "trainer.engines.torch",
    "trainer.envs.choose",
    "trainer.rollouts.roller",
    # By the first checkpoint.
    "torch.distributed.checkpoint",
    "torch.utils.serialization",
)

with importing():
    for name in MODULES:
        import_module(name)
