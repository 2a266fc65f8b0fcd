"""Grants of agent keys: runs and extensions of budgets that a key may spend.

Revision ID: 1021
Revises: 1020
"""

import sqlalchemy as sa
from alembic import op

revision = "1021"
down_revision = "1020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "run_grants",
        sa.Column("key_id", sa.String(), sa.ForeignKey("api_keys.id"), primary_key=True),
        sa.Column("project_id", sa.String(), sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("num_runs", sa.Integer(), nullable=False),
        sa.Column("num_runs_used", sa.Integer(), nullable=False),
        sa.Column("extra_usd", sa.Float(), nullable=False),
        sa.Column("extra_usd_used", sa.Float(), nullable=False),
        sa.Column("extra_hours", sa.Float(), nullable=False),
        sa.Column("extra_hours_used", sa.Float(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
        ),
        sa.CheckConstraint("num_runs_used >= 0", name="ck_run_grants_num_runs_used"),
        sa.CheckConstraint("extra_usd_used >= 0", name="ck_run_grants_extra_usd_used"),
        sa.CheckConstraint("extra_hours_used >= 0", name="ck_run_grants_extra_hours_used"),
    )
    op.create_index("ix_run_grants_project_id", "run_grants", ["project_id"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("run_grants")
