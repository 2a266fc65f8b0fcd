"""The sections `backend.skypilot` and `budget`: which machines a run may rent, and for how much."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from trainer.contract.clusters.clouds import CLOUDS, cloud_of
from trainer.contract.section import Section, Share

_INFRA = r"^[a-z0-9]+(/[A-Za-z0-9][A-Za-z0-9@:._-]*){0,2}$"
_GPUS = r"^[A-Za-z0-9][A-Za-z0-9-]{0,40}:[1-9][0-9]{0,2}$"
_IMAGE = r"^docker:\S+$"


def _written_as(pattern: str, wanted: str) -> BeforeValidator:
    """Refuse what does not match with a sentence that says what to write."""

    def check(value: object) -> object:
        if not isinstance(value, str) or re.match(pattern, value) is None:
            raise ValueError(f"{value!r:.80} cannot be read: write {wanted}")
        return value

    return BeforeValidator(check)


_Infra = Annotated[
    str,
    StringConstraints(pattern=_INFRA, max_length=200),
    _written_as(
        _INFRA,
        "CLOUD, CLOUD/REGION or CLOUD/REGION/ZONE, as in aws/us-east-1, with one of the clouds "
        + ", ".join(sorted(CLOUDS)),
    ),
]
_Accelerators = Annotated[
    str,
    StringConstraints(pattern=_GPUS),
    _written_as(_GPUS, "the GPU's name and how many of it one node has, as in H100:8"),
]
_Image = Annotated[
    str,
    StringConstraints(pattern=_IMAGE, max_length=500),
    _written_as(_IMAGE, "docker:REGISTRY/NAME:TAG, as in docker:pytorch/pytorch:latest"),
]
_Usd = Annotated[float, Field(gt=0.0, le=1e9)]


class CandidateSpec(Section):
    """One kind of machine that will do; every number is of one node, unless it says otherwise."""

    infra: _Infra
    """Where: `lambda`, `aws/us-east-1`, `aws/us-east-1/us-east-1a`, `slurm/CLUSTER`,
    `slurm/CLUSTER/PARTITION`, `k8s/CONTEXT`. Clouds: docs/clusters.md."""
    accelerators: _Accelerators | None = None
    """GPUs, as SkyPilot's catalogs name them: `H100:8`; null: a machine without."""
    cpus: Annotated[int, Field(ge=1, le=1024)] | None = None
    """At least so many virtual CPUs; null: the cloud's choice."""
    memory_gb: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """At least so much memory (GiB); null: what the estimate says, where it knows the model."""
    disk_gb: Annotated[int, Field(ge=30, le=100_000)] | None = None
    """Size of the disk (GiB); null: what the estimate says, at least SkyPilot's own 256. Refused
    where machines have the disk they have."""
    use_spot: bool = False
    """Take machines that the cloud may take back: the run goes on from its newest checkpoint."""
    max_hourly_usd: _Usd | None = None
    """Do not take it where an hour of all nodes together costs more (USD); null: any price."""
    image: _Image | None = None
    """Container to run in: `docker:REGISTRY/NAME:TAG`; null: the cloud's own image."""

    @property
    def cloud(self) -> str:
        """As SkyPilot calls it: `lambda`, `kubernetes`."""
        return cloud_of(self.infra)

    @property
    def gpu_name(self) -> str | None:
        """`H100`; None without GPUs."""
        return self.accelerators.partition(":")[0] if self.accelerators else None

    @property
    def gpus(self) -> int:
        """GPUs of one node (count)."""
        return int(self.accelerators.partition(":")[2]) if self.accelerators else 0

    @property
    def label(self) -> str:
        """How sentences name it: `H100:8 on lambda`."""
        return f"{self.accelerators or 'no GPU'} on {self.infra}{' (spot)' * self.use_spot}"

    @model_validator(mode="after")
    def _cloud_is_known(self) -> Self:
        if self.cloud not in CLOUDS:
            raise ValueError(
                f"infra {self.infra!r} begins with a cloud that is not supported: use one of "
                + ", ".join(sorted(CLOUDS))
            )
        return self


class TrainerInstall(Section):
    """Where the nodes get the data plane's environment from."""

    type: Literal["wheel", "image", "prebuilt"] = "wheel"
    """`wheel`: the attempt's own wheel and lock, installed when a node is set up. `image`: it is in
    the container that each candidate's `image` names. `prebuilt`: it is on the machines already, at
    `python`."""
    python: Annotated[str, StringConstraints(pattern=r"^/[^\s'\"]+$", max_length=500)] | None = None
    """Of `prebuilt`: the interpreter of that environment (`/opt/trainer/bin/python`)."""

    @model_validator(mode="after")
    def _python_belongs_to_prebuilt(self) -> Self:
        if self.type == "prebuilt" and self.python is None:
            raise ValueError(
                "trainer.type prebuilt needs trainer.python: the path of the interpreter that the"
                " nodes have"
            )
        if self.type != "prebuilt" and self.python is not None:
            raise ValueError(
                f"trainer.python is read only with trainer.type prebuilt, and it is {self.type}:"
                " leave python out"
            )
        return self


class SkyPilotSpec(Section):
    """The cluster of one attempt, rented through SkyPilot (docs/clusters.md)."""

    candidates: Annotated[tuple[CandidateSpec, ...], Field(min_length=1, max_length=16)]
    """Machines that will do; those that cannot (docs/clusters.md) are left out with a reason."""
    choose: Literal["ordered", "cheapest"] = "ordered"
    """`ordered`: the first of the list that can be had; `cheapest`: the one that costs least."""
    num_nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Nodes of the gang, all alike; Ray is started on them together."""
    trainer: TrainerInstall = TrainerInstall()
    """Where the data plane's environment comes from."""
    api_reachable: bool = True
    """Whether the nodes can reach this service. false: secrets are in a file that SkyPilot copies
    to the nodes, and lie on its API server for a while; everything else is in the blob store."""
    idle_minutes: Annotated[int, Field(ge=5, le=10_080)] = 30
    """Let the cloud end a cluster that has been idle for so long, where the clouds of all
    candidates can (minutes); the service ends it in any case."""
    max_hours: Annotated[float, Field(gt=0.0, le=8760.0)] = 24.0
    """Longest life of one cluster (hours): then it is ended, whatever it does."""
    max_recoveries: Annotated[int, Field(ge=0, le=100)] = 3
    """Clusters that may be asked for after the first, because one was lost, was taken back or did
    not come up (count)."""

    @model_validator(mode="after")
    def _images_are_there(self) -> Self:
        if self.trainer.type == "image":
            bare = next((each for each in self.candidates if each.image is None), None)
            if bare is not None:
                raise ValueError(
                    f"trainer.type image takes the environment from each candidate's image, and"
                    f" {bare.label} names none: set candidates.image or trainer.type wheel"
                )
        return self


class BudgetSpec(Section):
    """What a run may cost; it is warned of, then the run checkpoints and pauses."""

    usd: _Usd | None = None
    """Most that its clusters may cost together (USD); null: no limit."""
    hours: Annotated[float, Field(gt=0.0, le=100_000.0)] | None = None
    """Longest time that its clusters may be up, together (hours); null: no limit."""
    warn_at: Annotated[tuple[Share, ...], Field(max_length=8)] = (0.5, 0.8)
    """Shares of either at which a warning is sent; at 1 the run pauses, until it is extended."""

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.usd is None and self.hours is None:
            raise ValueError(
                "a budget limits nothing without usd or hours: set one, or leave it out"
            )
        if list(self.warn_at) != sorted(set(self.warn_at)) or any(
            not 0.0 < share < 1.0 for share in self.warn_at
        ):
            raise ValueError(
                f"budget.warn_at {list(self.warn_at)} must rise, between 0 and 1: at 1 the run"
                " pauses anyway"
            )
        return self
