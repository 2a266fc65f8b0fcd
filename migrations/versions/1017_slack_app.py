"""The Slack app: its requests, links of people, live messages, and acknowledged guards.

Revision ID: 1017
Revises: 1016
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1017"
down_revision = "1016"
branch_labels = None
depends_on = None


def _time(name: str, *, nullable: bool, default: bool = False) -> sa.Column[object]:
    server_default = sa.func.now() if default else None
    return sa.Column(
        name, sa.DateTime(timezone=True), nullable=nullable, server_default=server_default
    )


def upgrade() -> None:
    """Create the tables; threads until now become live messages of their runs."""
    for name in ("slack_links", "slack_link_codes"):
        _create_of_key(name)
    op.create_index("ix_slack_links_project_id", "slack_links", ["project_id"])
    op.create_index("ix_slack_link_codes_expires_at", "slack_link_codes", ["expires_at"])
    _create_requests()
    op.alter_column("slack_threads", "ts", nullable=True)
    op.add_column("slack_threads", sa.Column("channel_id", sa.String(), nullable=True))
    op.add_column("slack_threads", sa.Column("seq", sa.Integer(), server_default="0"))
    op.alter_column("slack_threads", "seq", nullable=False)
    op.add_column("slack_threads", sa.Column("digest", sa.String(), nullable=True))
    op.add_column("slack_threads", _time("next_update_at", nullable=True, default=True))
    op.add_column("slack_threads", sa.Column("error", sa.String(), nullable=True))
    op.create_index("ix_slack_threads_next_update_at", "slack_threads", ["next_update_at"])
    op.execute("UPDATE slack_threads SET channel_id = channel")
    op.execute(
        "UPDATE slack_threads SET channel = runs.spec #>> '{notify,slack,channel}' FROM runs"
        " WHERE runs.id = run_id AND runs.spec #>> '{notify,slack,channel}' IS NOT NULL"
    )
    op.add_column("guard_trips", _time("acknowledged_at", nullable=True))
    op.add_column("guard_trips", sa.Column("acknowledged_by", sa.String(), nullable=True))


def _create_of_key(name: str) -> None:
    own = {
        "slack_links": [
            sa.Column("team_id", sa.String(), primary_key=True),
            sa.Column("user_id", sa.String(), primary_key=True),
        ],
        "slack_link_codes": [
            sa.Column("sha256", sa.String(), primary_key=True),
            _time("expires_at", nullable=False),
        ],
    }
    op.create_table(
        name,
        *own[name],
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("key_id", sa.String(), sa.ForeignKey("api_keys.id"), nullable=False),
        _time("created_at", nullable=False, default=True),
    )


def _create_requests() -> None:
    op.create_table(
        "slack_requests",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), nullable=True),
        sa.Column("signature", sa.String(), nullable=False),
        sa.Column("dedupe_key", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("payload", JSONB(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("num_attempts", sa.Integer(), nullable=False),
        _time("next_try_at", nullable=False, default=True),
        _time("lease_until", nullable=True),
        sa.Column("spec", JSONB(), nullable=True),
        sa.Column("reply", JSONB(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        _time("created_at", nullable=False, default=True),
        sa.UniqueConstraint("signature", name="uq_slack_requests_signature"),
        sa.UniqueConstraint("dedupe_key", name="uq_slack_requests_dedupe_key"),
    )
    op.create_index(
        "ix_slack_requests_due",
        "slack_requests",
        ["next_try_at"],
        postgresql_where=sa.text("state IN ('received', 'answered')"),
    )


def downgrade() -> None:
    """Drop what the upgrade added; messages that were not posted are forgotten."""
    op.drop_column("guard_trips", "acknowledged_by")
    op.drop_column("guard_trips", "acknowledged_at")
    op.execute("DELETE FROM slack_threads WHERE ts IS NULL")
    op.execute("UPDATE slack_threads SET channel = channel_id WHERE channel_id IS NOT NULL")
    op.drop_index("ix_slack_threads_next_update_at", table_name="slack_threads")
    for column in ("error", "next_update_at", "digest", "seq", "channel_id"):
        op.drop_column("slack_threads", column)
    op.alter_column("slack_threads", "ts", nullable=False)
    for table in ("slack_requests", "slack_link_codes", "slack_links"):
        op.drop_table(table)
