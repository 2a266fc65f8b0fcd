"""Secrets and defaults of projects, and webhooks.

Revision ID: 1019
Revises: 1018
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "1019"
down_revision = "1018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, and the outbox's columns about webhooks."""
    op.create_table(
        "project_secrets",
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), primary_key=True),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("updated_by", sa.String(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        _created_at(),
    )
    op.create_table(
        "project_defaults",
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), primary_key=True),
        sa.Column("defaults", JSONB(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_by", sa.String(), nullable=False),
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("events", ARRAY(sa.String()), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(), nullable=True),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        _created_at(),
    )
    op.create_index("ix_webhooks_project_id", "webhooks", ["project_id"])
    op.add_column("outbox", sa.Column("webhook_id", sa.String(), nullable=True))
    op.create_foreign_key(
        "fk_outbox_webhook_id_webhooks", "outbox", "webhooks", ["webhook_id"], ["id"]
    )
    op.add_column("outbox", sa.Column("status_code", sa.Integer(), nullable=True))
    op.create_index(
        "ix_outbox_webhook_id_id",
        "outbox",
        ["webhook_id", "id"],
        postgresql_where=sa.text("webhook_id IS NOT NULL"),
    )


def downgrade() -> None:
    """Drop the tables and columns, and the messages to webhooks."""
    op.execute("DELETE FROM outbox WHERE webhook_id IS NOT NULL")
    op.drop_index("ix_outbox_webhook_id_id", "outbox")
    op.drop_column("outbox", "status_code")
    op.drop_column("outbox", "webhook_id")
    for table in ("webhooks", "project_defaults", "project_secrets"):
        op.drop_table(table)


def _created_at() -> sa.Column[sa.DateTime]:
    return sa.Column(
        "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
    )
