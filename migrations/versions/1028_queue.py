"""The queue class of a run as a column with an index of what waits, and the marks of sweeps.

Revision ID: 1028
Revises: 1027
"""

import sqlalchemy as sa
from alembic import op

revision = "1028"
down_revision = "1027"
branch_labels = None
depends_on = None

QUEUE_CLASS = (
    "CASE WHEN spec -> 'backend' ->> 'type' = 'skypilot'"
    " AND spec ->> 'kind' <> 'preview' THEN 'cluster' ELSE 'runner' END"
)
WAITS = "status IN ('queued', 'recovering')"


def upgrade() -> None:
    """Add the column, which the database computes, so that older code fills it too."""
    op.add_column(
        "runs",
        sa.Column("queue_class", sa.String(), sa.Computed(QUEUE_CLASS, persisted=True)),
    )
    op.create_index(
        "ix_runs_queue",
        "runs",
        ["project_id", "queue_class", sa.text("status DESC"), "created_at", "id"],
        postgresql_where=sa.text(WAITS),
    )
    op.create_index(
        "ix_runs_submissions",
        "runs",
        ["project_id", "created_at"],
        postgresql_where=sa.text("origin IS NULL"),
    )
    op.create_table(
        "sweeps",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop the column, the indexes and the table."""
    op.drop_table("sweeps")
    op.drop_index("ix_runs_submissions", "runs")
    op.drop_index("ix_runs_queue", "runs")
    op.drop_column("runs", "queue_class")
