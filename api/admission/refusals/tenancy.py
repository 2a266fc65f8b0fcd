"""Rejects a spec that reaches beyond its project: files of others, and channels of others.

Trainers read files with the credentials of their machine, and messages are posted by one bot for
all projects: what a spec may name there is the operator's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from api.runs.errors import AddressRefused
from api.settings import Settings
from api.tables.access.identity import DEFAULT_PROJECT
from hillclimb.blobs.allowed import NoAddress, is_below, is_in_store
from hillclimb.spec.hosts import S3
from hillclimb.spec.rules.addresses import NamedFile, named_files
from hillclimb.spec.rules.project_defaults import AWS_KEYS
from hillclimb.spec.run import RunSpec

OWN_KEYS = AWS_KEYS - {"AWS_SESSION_TOKEN"}
"""With these two among its secrets a run reads buckets as itself, not as the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenancyRules:
    """The operator's rules for what specs may name."""

    sources: tuple[str, ...] = ()
    """Prefixes of files that trainers may read."""
    stores: tuple[str, ...] = ()
    """Blob stores: no spec reads there, whatever `sources` cover."""
    channels: Mapping[str, str] = field(default_factory=dict)
    """The project of each Slack channel that the operator has assigned."""
    open_channels: frozenset[str] = frozenset()
    """Channels that any project may name: the operator's own, and the one that Slack says a
    request comes from."""

    @classmethod
    def of(cls, settings: Settings) -> TenancyRules:
        """Return the rules in the operator's settings."""
        own = settings.slack_channel
        return cls(
            sources=tuple(settings.run_sources.split()),
            stores=settings.store_urls,
            channels=settings.channel_owners,
            open_channels=frozenset({own} if own is not None else ()),
        )

    def from_channel(self, channel: str) -> TenancyRules:
        """Return the rules for a request that Slack says somebody sent from this channel."""
        return replace(self, open_channels=self.open_channels | {channel})

    def refuse_foreign(self, spec: RunSpec, project_id: str, *, channel: str | None = None) -> None:
        """Refuse a spec that names what its project may not use.

        `channel` is one that the project uses already, in the run that the spec continues.

        Raises:
            AddressRefused: a file or a channel; the message has the remedy.
        """
        has_own_keys = all(spec.secrets.get(key) is not None for key in OWN_KEYS)
        for file in named_files(spec):
            self._refuse_file(file, has_own_keys=has_own_keys and file.address.startswith(S3))
        slack = spec.notify.slack
        if slack is not None and slack.channel != channel:
            self.refuse_channel(slack.channel, project_id, setting="notify.slack.channel")

    def refuse_channel(self, channel: str, project_id: str, *, setting: str) -> None:
        """Refuse a channel that is another project's; raises AddressRefused.

        The operator's own project may name any channel that nobody else has.
        """
        owner = self.channels.get(_plain(channel))
        is_free = owner is None and project_id == DEFAULT_PROJECT
        is_open = _plain(channel) in {_plain(each) for each in self.open_channels}
        if not (is_open or owner == project_id or is_free):
            raise AddressRefused(
                f"{setting} is {channel}, and this project may not post there: ask the operator to"
                f" add {_plain(channel)}={project_id} to HILLCLIMB_SLACK_CHANNELS, or leave"
                " notify.slack out"
            )

    def _refuse_file(self, file: NamedFile, *, has_own_keys: bool) -> None:
        setting, address = file.setting, file.address
        if not address.startswith((S3, "/")):
            raise AddressRefused(
                f"{setting} is {address!r:.300}, and a trainer runs in another directory: write an"
                " absolute path or s3://BUCKET/PATH"
            )
        try:
            is_closed = is_in_store(address, self.stores)
            is_open = has_own_keys or is_below(address, self.sources)
        except NoAddress as error:
            raise AddressRefused(f"{setting}: {error}.") from error
        if is_closed:
            raise AddressRefused(
                f"{setting} is {address}, which lies in the blob store of this service, where all"
                " projects have their files: name a run of this project (model.source run:RUN,"
                " sft.rollouts_of)"
            )
        if not is_open:
            own = " With its own AWS keys among secrets, a spec may name any bucket."
            raise AddressRefused(
                f"{setting} is {address}, which trainers of this service may not read: ask the"
                " operator to add its prefix to HILLCLIMB_RUN_SOURCES"
                f" (there: {' '.join(self.sources) or 'nothing'})."
                f"{own if address.startswith(S3) else ''}"
            )


def _plain(channel: str) -> str:
    """Return a channel's name without `#`, which Slack does not require, or its id."""
    return channel.removeprefix("#").lower()
