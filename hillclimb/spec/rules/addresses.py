"""Every address that a spec may name: files that the trainer reads, and hosts that get secrets.

The service compares both with what project and operator allow (`api/admission/refusals`). A new
setting that names an address belongs here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from hillclimb.spec.hosts import FOR_RUNS, is_loopback, is_sent_to
from hillclimb.spec.rules.project_defaults import TINKER_KEY
from hillclimb.spec.rules.required_secrets import FLEET_KEY
from hillclimb.spec.sections import RunSections

Hosts = Mapping[str, Collection[str]]
"""Hosts by the variable of an operator's secret that may be sent there."""
NO_HOSTS: Hosts = {}
ANYONES_MODELS = ("builtin:", "hf:", "run:", "imported:")
"""Beginnings of a `model.source` that names no file: a run is one of the project's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file or folder that the trainer reads with the credentials of its machine."""

    setting: str
    address: str
    """An absolute path or `s3://BUCKET/PATH`, as the spec has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A server that receives the value of a variable of the trainer's environment."""

    setting: str
    url: str
    variable: str
    is_platform: bool = False
    """True if the trainer itself sends the variable only to the platform that it is named for."""


def named_files(spec: RunSections) -> Iterator[NamedFile]:
    """Yield the files that the run's trainer would read."""
    if not spec.model.source.startswith(ANYONES_MODELS):
        yield NamedFile(setting="model.source", address=spec.model.source)
    if spec.kind == "sft" and spec.sft.demonstrations is not None:
        yield NamedFile(setting="sft.demonstrations", address=spec.sft.demonstrations)


def destinations(spec: RunSections) -> Iterator[Destination]:
    """Yield the servers to which the run's trainer would send secrets."""
    environment, teacher = spec.environment, spec.validation.teacher
    if environment.provider == "openenv":
        for name, server in environment.openenv.items():
            setting = f"environment.openenv.{name}.url"
            for variable in server.headers.values():
                yield Destination(setting=setting, url=server.url, variable=variable)
    if spec.kind == "validate" and teacher is not None and teacher.api_key_env is not None:
        yield Destination(
            setting="validation.teacher.base_url",
            url=teacher.base_url,
            variable=teacher.api_key_env,
        )
    if environment.provider == "fleet" and environment.fleet.base_url is not None:
        yield Destination(
            setting="environment.fleet.base_url",
            url=environment.fleet.base_url,
            variable=FLEET_KEY,
            is_platform=True,
        )
    tinker = spec.backend.tinker_server
    if tinker is not None and tinker.base_url is not None:
        yield Destination(
            setting="backend.tinker.base_url",
            url=tinker.base_url,
            variable=TINKER_KEY,
            is_platform=True,
        )


def sent_variables(spec: RunSections, hosts: Hosts) -> frozenset[str]:
    """Return the operator's variables `RUN_SECRET_…` that the run may send where it would.

    `hosts` are those that the operator has named for each. A server on the trainer's own machine is
    always one: what runs there is the operator's choice too.
    """
    by_variable: dict[str, list[str]] = {}
    for each in destinations(spec):
        if each.variable.startswith(FOR_RUNS):
            by_variable.setdefault(each.variable, []).append(each.url)
    return frozenset(
        variable
        for variable, urls in by_variable.items()
        if all(is_loopback(url) or is_sent_to(url, hosts.get(variable, ())) for url in urls)
    )
