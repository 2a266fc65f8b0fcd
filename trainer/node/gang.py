"""The gang: all machines of one job, from SkyPilot's variables on each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.node.errors import NodeMisconfigured

RANK, IPS = "SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS"
NUM_NODES, NUM_GPUS = "SKYPILOT_NUM_NODES", "SKYPILOT_NUM_GPUS_PER_NODE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The machines of one job, and this machine's rank among them."""

    rank: int = 0
    ips: tuple[str, ...] = ("127.0.0.1",)
    """Addresses of all machines, by rank."""
    num_gpus: int = 0
    """GPUs of each machine (count)."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Gang:
        """Read SkyPilot's variables; without them this is the only machine.

        Raises NodeMisconfigured.
        """
        ips = tuple(environ.get(IPS, "").split()) or ("127.0.0.1",)
        rank, num_gpus = _count(environ, RANK, 0), _count(environ, NUM_GPUS, 0)
        num_nodes = _count(environ, NUM_NODES, len(ips))
        if num_nodes != len(ips):
            raise NodeMisconfigured(f"{NUM_NODES} is {num_nodes}, and {IPS} has {len(ips)} of them")
        if rank >= num_nodes:
            raise NodeMisconfigured(f"{RANK} is {rank} of {num_nodes}: they count from 0")
        return cls(rank=rank, ips=ips, num_gpus=num_gpus)

    @property
    def is_head(self) -> bool:
        """True on the first machine, which runs the trainer."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """True where the gang is a single machine."""
        return len(self.ips) == 1

    @property
    def own_ip(self) -> str:
        """This machine's address for the others."""
        return self.ips[self.rank]

    @property
    def head_ip(self) -> str:
        """The first machine's address."""
        return self.ips[0]


def _count(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal():
        raise NodeMisconfigured(f"{name} must be a whole number, not {text!r}")
    return int(text)
