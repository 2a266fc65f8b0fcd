"""People, members, quotas, the audit log, and keys with expiry and rotation.

Revision ID: 1018
Revises: 1017
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1018"
down_revision = "1017"
branch_labels = None
depends_on = None

KEY_COLUMNS = (
    ("expires_at", sa.DateTime(timezone=True)),
    ("last_used_at", sa.DateTime(timezone=True)),
    ("previous_prefix", sa.String()),
    ("previous_sha256", sa.String()),
    ("previous_until", sa.DateTime(timezone=True)),
)


def _created_at() -> sa.Column:
    return sa.Column(
        "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
    )


def _project(**options: bool) -> sa.Column:
    return sa.Column(
        "project_id", sa.String(), sa.ForeignKey("projects.id"), nullable=False, **options
    )


def upgrade() -> None:
    """Create four tables, and the columns of keys; keys that exist came from the environment."""
    op.create_table(
        "people",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("issuer", sa.String(), nullable=True),
        sa.Column("subject", sa.String(), nullable=True),
        sa.Column("last_login_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sessions_since", sa.DateTime(timezone=True), nullable=True),
        _created_at(),
        sa.UniqueConstraint("email", name="uq_people_email"),
        sa.UniqueConstraint("issuer", "subject", name="uq_people_issuer_subject"),
    )
    op.create_table(
        "members",
        _project(primary_key=True),
        sa.Column("person_id", sa.String(), sa.ForeignKey("people.id"), primary_key=True),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("added_by", sa.String(), nullable=False),
        _created_at(),
    )
    op.create_index("ix_members_person_id", "members", ["person_id"])
    op.create_table(
        "project_quotas",
        _project(primary_key=True),
        sa.Column("queued_runs", sa.Integer(), nullable=True),
        sa.Column("running_runs", sa.Integer(), nullable=True),
        sa.Column("submissions_per_hour", sa.Integer(), nullable=True),
        sa.Column("dataset_bytes", sa.BigInteger(), nullable=True),
        sa.Column("set_by", sa.String(), nullable=False),
    )
    op.create_table(
        "audit_records",
        sa.Column("id", sa.String(), primary_key=True),
        _project(),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=True),
        sa.Column("person_id", sa.String(), nullable=True),
        sa.Column("route", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("changes", JSONB(), nullable=False),
        _created_at(),
    )
    op.create_index("ix_audit_records_page", "audit_records", ["project_id", "id"])
    for name, kind in KEY_COLUMNS:
        op.add_column("api_keys", sa.Column(name, kind, nullable=True))
    op.add_column(
        "api_keys",
        sa.Column("created_by", sa.String(), server_default=sa.text("'service'"), nullable=False),
    )
    op.add_column(
        "api_keys",
        sa.Column("is_from_environment", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.add_column(
        "api_keys", sa.Column("person_id", sa.String(), sa.ForeignKey("people.id"), nullable=True)
    )
    op.create_index("ix_api_keys_person_id", "api_keys", ["person_id"])
    op.create_index("ix_api_keys_previous_prefix", "api_keys", ["previous_prefix"])
    op.execute("UPDATE api_keys SET is_from_environment = true")


def downgrade() -> None:
    """Drop the columns of keys and the four tables."""
    op.drop_index("ix_api_keys_previous_prefix", "api_keys")
    op.drop_index("ix_api_keys_person_id", "api_keys")
    for name in ("person_id", "is_from_environment", "created_by"):
        op.drop_column("api_keys", name)
    for name, _ in reversed(KEY_COLUMNS):
        op.drop_column("api_keys", name)
    op.drop_table("audit_records")
    op.drop_table("project_quotas")
    op.drop_table("members")
    op.drop_table("people")
