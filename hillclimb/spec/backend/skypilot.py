"""The sections `backend.skypilot` and `budget`: machines that a run may rent, and cost limits."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from hillclimb.spec.backend.clouds import CLOUDS, cloud_of
from hillclimb.spec.section import Section, Share

_INFRA = r"^[a-z0-9]+(/[A-Za-z0-9][A-Za-z0-9@:._-]*){0,2}$"
_GPUS = r"^[A-Za-z0-9][A-Za-z0-9-]{0,40}:[1-9][0-9]{0,2}$"
_IMAGE = r"^docker:\S+$"


def _written_as(pattern: str, form: str) -> BeforeValidator:
    """Return a validator that refuses other values with a sentence that names the form."""

    def check(value: object) -> object:
        if not isinstance(value, str) or re.match(pattern, value) is None:
            raise ValueError(f"{value!r:.80} cannot be read: write {form}")
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
    """A kind of machine that the run may use; numbers are per node unless stated otherwise."""

    infra: _Infra
    """Cloud, region or cluster: `lambda`, `aws/us-east-1`, `aws/us-east-1/us-east-1a`,
    `slurm/CLUSTER`, `slurm/CLUSTER/PARTITION`, `k8s/CONTEXT`. Clouds: docs/clusters.md."""
    accelerators: _Accelerators | None = None
    """GPUs by the names of SkyPilot's catalogs: `H100:8`; null: a machine without GPUs."""
    cpus: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Minimum number of virtual CPUs; null: the cloud's choice."""
    memory_gb: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Minimum memory (GiB); null: the estimate, if it knows the model."""
    disk_gb: Annotated[int, Field(ge=30, le=100_000)] | None = None
    """Size of the disk (GiB); null: the estimate, at least SkyPilot's own 256. Refused on clouds
    whose machines have a fixed disk."""
    use_spot: bool = False
    """Use spot machines, which the cloud may preempt: the run resumes from its newest checkpoint.
    """
    max_hourly_usd: _Usd | None = None
    """Highest price of all nodes together per hour (USD); null: any price."""
    image: _Image | None = None
    """Container to run in: `docker:REGISTRY/NAME:TAG`; null: the cloud's own image."""

    @property
    def cloud(self) -> str:
        """SkyPilot's name of the cloud: `lambda`, `kubernetes`."""
        return cloud_of(self.infra)

    @property
    def gpu_name(self) -> str | None:
        """Name of the GPU, such as `H100`; None without GPUs."""
        return self.accelerators.partition(":")[0] if self.accelerators else None

    @property
    def gpus(self) -> int:
        """GPUs of one node (count)."""
        return int(self.accelerators.partition(":")[2]) if self.accelerators else 0

    @property
    def label(self) -> str:
        """Name of the candidate in messages: `H100:8 on lambda`."""
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
    """Source of the data plane's environment on the nodes."""

    type: Literal["wheel", "image", "prebuilt"] = "wheel"
    """`wheel`: the attempt's own wheel and lock, installed during node setup. `image`: part of the
    container that each candidate's `image` names. `prebuilt`: already on the machines, at
    `python`."""
    python: Annotated[str, StringConstraints(pattern=r"^/[^\s'\"]+$", max_length=500)] | None = None
    """Of `prebuilt`: path of that environment's interpreter (`/opt/trainer/bin/python`)."""

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
    """Machines that the run may use; ineligible ones (docs/clusters.md) are skipped with a reason.
    """
    choose: Literal["ordered", "cheapest"] = "ordered"
    """`ordered`: the first one of the list that is available; `cheapest`: the one with the lowest
    price."""
    num_nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Identical nodes of the cluster (count), which form one Ray cluster."""
    trainer: TrainerInstall = TrainerInstall()
    """Source of the data plane's environment on the nodes."""
    api_reachable: bool = True
    """True if the nodes can reach this service. false: secrets are in a file that SkyPilot copies
    to the nodes, and stay on its API server for a while; everything else goes through the blob
    store."""
    idle_minutes: Annotated[int, Field(ge=5, le=10_080)] = 30
    """Idle time after which the cloud itself terminates the cluster (minutes), if the clouds of all
    candidates can; the service terminates it in any case."""
    max_hours: Annotated[float, Field(gt=0.0, le=8760.0)] = 24.0
    """Longest life of one cluster (hours); the service then terminates it, busy or not."""
    max_recoveries: Annotated[int, Field(ge=0, le=100)] = 3
    """Clusters that may be requested after the first (count), because one was lost, was preempted
    or failed to start."""

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
    """Limits of the cost of a run: warnings are sent, then the run checkpoints and pauses."""

    usd: _Usd | None = None
    """Limit of the cost of all its clusters (USD); null: no limit."""
    hours: Annotated[float, Field(gt=0.0, le=100_000.0)] | None = None
    """Limit of the running time of all its clusters together (hours); null: no limit."""
    warn_at: Annotated[tuple[Share, ...], Field(max_length=8)] = (0.5, 0.8)
    """Shares of either limit at which a warning is sent; at 1 the run pauses until the budget is
    extended."""

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
