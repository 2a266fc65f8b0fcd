"""Grades of stored rollouts by another version of their verifier.

Revision ID: 1010
Revises: 1009
"""

import sqlalchemy as sa
from alembic import op

revision = "1010"
down_revision = "1009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "rescored_outcomes",
        sa.Column("run_id", sa.String(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("verifier", sa.String(), primary_key=True),
        sa.Column("rollout_id", sa.String(), primary_key=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("rescored_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("rescored_outcomes")
