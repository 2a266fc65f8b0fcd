"""Binds a project's secrets to hosts: a spec chooses addresses, and an admin where a secret goes.

Otherwise whoever may submit a run could have any secret of the project sent to a server of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api.tables.access.secrets.errors import SecretNotForHost
from hillclimb.spec.hosts import FOR_RUNS, is_sent_to
from hillclimb.spec.rules.addresses import destinations
from hillclimb.spec.run import RunSpec


def refuse_foreign_hosts(spec: RunSpec, bound: Mapping[str, tuple[str, Sequence[str]]]) -> None:
    """Refuse a spec that would send a secret to a host that is not among the secret's own.

    `bound` has the secret's name and hosts by the variable that the spec maps it to. A secret
    without hosts goes only to the platform that its variable is named for, one with hosts only to
    servers that the spec names.

    Raises SecretNotForHost.
    """
    addressed = set()
    for each in destinations(spec):
        name, hosts = bound.get(each.variable, ("", ()))
        addressed.add(each.variable)
        if not name or (each.is_platform and not hosts):
            continue
        if not is_sent_to(each.url, hosts):
            raise SecretNotForHost(
                f"{each.setting} is {each.url}, and the secret {name!r} may be sent to"
                f" {', '.join(hosts) or 'no host that a spec names'}: an admin who has its value"
                f" adds the host with `hillclimb secrets set {name} --host HOST`"
            )
    for variable, (name, hosts) in bound.items():
        if hosts and variable not in addressed and not variable.startswith(FOR_RUNS):
            raise SecretNotForHost(
                f"secrets.{variable} names the secret {name!r}, which is for {', '.join(hosts)}"
                f" alone, and the trainer sends {variable} to a platform: store the platform's key"
                " under a name of its own, without --host"
            )
