"""Retention: when parts of a run that ended long ago were removed, and an index of ended runs.

Revision ID: 1031
Revises: 1030
"""

import sqlalchemy as sa
from alembic import op

revision = "1031"
down_revision = "1030"
branch_labels = None
depends_on = None

COLUMNS = ("trajectories_removed_at", "token_values_removed_at", "metrics_sampled_at")


def upgrade() -> None:
    """Add the columns and the index; nothing was removed from any run before."""
    for column in COLUMNS:
        op.add_column("runs", sa.Column(column, sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_runs_ended_at",
        "runs",
        ["ended_at"],
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )


def downgrade() -> None:
    """Drop the index and the columns."""
    op.drop_index("ix_runs_ended_at", "runs")
    for column in reversed(COLUMNS):
        op.drop_column("runs", column)
