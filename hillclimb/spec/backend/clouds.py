"""Supported clouds, by SkyPilot's names."""

from __future__ import annotations

CLOUDS = (
    *("lambda", "runpod", "vast", "primeintellect", "nebius"),
    *("aws", "gcp", "kubernetes", "slurm"),
)
OWN_NETWORKS = ("slurm", "kubernetes")
"""The operator's own clusters, which may share a network and a file system with this service."""
_OTHER_NAMES = {"k8s": "kubernetes"}


def cloud_of(infra: str) -> str:
    """Return the cloud of `aws/us-east-1` or `k8s/CONTEXT`."""
    name = infra.partition("/")[0]
    return _OTHER_NAMES.get(name, name)
