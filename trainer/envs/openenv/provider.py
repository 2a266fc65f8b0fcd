"""OpenEnv servers as an environment provider."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import httpx
from pydantic import JsonValue

from hillclimb.environment.errors import EnvUnavailable
from hillclimb.environment.task import Task
from hillclimb.process.network.addresses import AllowedHosts
from hillclimb.spec.environment.openenv import OpenEnvServer
from hillclimb.spec.hosts import OPERATORS_HOSTS
from trainer.attempt.destinations import allowed_hosts, check_destination
from trainer.envs.openenv.actions import Actions
from trainer.envs.openenv.env import OpenEnvEpisode
from trainer.envs.openenv.rewards import RewardScale
from trainer.envs.openenv.session import action_schema
from trainer.errors import EnvironmentOutage, SpecError


class OpenEnvProvider:
    """Provider of episodes on the OpenEnv servers of a spec.

    Args:
        servers: by environment key, in the order of `env_keys`.
        variables: where headers come from (default: this process's environment).

    Raises:
        SpecError: a variable that a header is taken from is not set.
    """

    def __init__(
        self, servers: Mapping[str, OpenEnvServer], variables: Mapping[str, str] = os.environ
    ) -> None:
        self._allowed = allowed_hosts(variables)
        self._servers = {
            key: _Server(key, server, header_values(key, server, variables), self._allowed)
            for key, server in servers.items()
        }

    @property
    def env_keys(self) -> tuple[str, ...]:
        """The environments served."""
        return tuple(self._servers)

    def make(self, task: Task) -> OpenEnvEpisode:
        """Return a fresh episode; the task's reset arguments are those under `metadata.reset`.

        Raises:
            SpecError: the task's environment is not served, or its reset arguments are none.
        """
        server = self._servers.get(task.env_key)
        if server is None:
            raise SpecError(f"{task.env_key} is not among the served environments")
        arguments = {**server.spec.reset, **_reset_arguments(task)}
        return OpenEnvEpisode(
            server.spec, server.headers, server.actions, arguments, server.scale, self._allowed
        )


async def check_servers(
    servers: Mapping[str, OpenEnvServer], variables: Mapping[str, str] = os.environ
) -> None:
    """Check that each server responds, by loading its actions.

    Raises:
        SpecError: a server refuses us, is none of OpenEnv's, or is nowhere that may be reached.
        EnvironmentOutage: a server does not answer.
    """
    allowed = allowed_hosts(variables)
    for key, server in servers.items():
        where = f"environment.openenv.{key}.url ({server.url})"
        await check_destination(f"environment.openenv.{key}.url", server.url, allowed)
        try:
            await action_schema(server, header_values(key, server, variables), allowed)
        except httpx.HTTPStatusError as fault:
            if fault.response.is_server_error:
                raise EnvironmentOutage(f"{where} fails: {fault}") from fault
            status = fault.response.status_code
            raise SpecError(
                f"{where} answers {status} to GET /schema: check address and headers"
            ) from fault
        except httpx.DecodingError as fault:
            raise SpecError(f"{where} is no OpenEnv server: {fault}; check the address") from fault
        except httpx.HTTPError as fault:
            raise EnvironmentOutage(
                f"{where} does not answer ({str(fault) or type(fault).__name__}): start the server"
            ) from fault


class _Server:
    """One server, whose actions are loaded once, and the rewards seen of it."""

    def __init__(
        self, key: str, spec: OpenEnvServer, headers: Mapping[str, str], allowed: AllowedHosts
    ) -> None:
        self.spec = spec
        self._allowed = allowed
        self.headers = headers
        self.scale = RewardScale(key, spec)
        self._key = key
        self._actions: Actions | None = None
        self._asking = asyncio.Lock()

    async def actions(self) -> Actions:
        """Return the server's actions.

        Raises:
            EnvUnavailable: it did not say.
        """
        async with self._asking:
            if self._actions is None:
                try:
                    schema = await action_schema(self.spec, self.headers, self._allowed)
                except httpx.HTTPError as fault:
                    raise EnvUnavailable(
                        f"the OpenEnv server of {self._key} gave no schema: {fault}"
                    ) from fault
                self._actions = Actions(schema=schema, text_field=self.spec.text_field)
        return self._actions


def header_values(key: str, server: OpenEnvServer, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of every request to a server, with their secrets.

    Raises:
        SpecError: a variable that a header is taken from is not set, or no header can carry it.
    """
    values = {}
    for header, variable in server.headers.items():
        setting = f"environment.openenv.{key}.headers takes {header} from the variable {variable}"
        value = variables.get(variable, "").strip()
        if not value:
            raise SpecError(
                f"{setting}, which is not set where the trainer runs: set it for the runner, and"
                f" its host in {OPERATORS_HOSTS}, or name a secret of the project for it"
            )
        if not (value.isascii() and value.isprintable()):
            raise SpecError(
                f"{setting}, which holds what no header can carry (a line break, or a character"
                " outside of ASCII): set it anew for the runner"
            )
        values[header] = value
    return values


def _reset_arguments(task: Task) -> dict[str, JsonValue]:
    metadata = task.payload.get("metadata")
    arguments = metadata.get("reset") if isinstance(metadata, dict) else None
    if arguments is not None and not isinstance(arguments, dict):
        raise SpecError(
            f"metadata.reset of task {task.key} is no object: it holds the arguments of the"
            " server's reset by name"
        )
    return dict(arguments or {})
