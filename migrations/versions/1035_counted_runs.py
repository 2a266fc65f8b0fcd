"""Counts the waiting and the recent runs of a project without reading their rows.

Revision ID: 1035
Revises: 1034
"""

import sqlalchemy as sa
from alembic import op

revision = "1035"
down_revision = "1034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Replace two indexes by ones whose condition is all that the counts ask of a row."""
    op.create_index(
        "ix_runs_waiting",
        "runs",
        ["project_id", "queue_class", sa.text("status DESC"), "created_at", "id"],
        postgresql_where=sa.text("status IN ('queued', 'recovering') AND deleting_at IS NULL"),
    )
    op.create_index(
        "ix_runs_submitted",
        "runs",
        ["project_id", "created_at"],
        postgresql_where=sa.text("origin IS NULL AND deleting_at IS NULL"),
    )
    op.drop_index("ix_runs_submissions", "runs")
    op.drop_index("ix_runs_queue", "runs")


def downgrade() -> None:
    """Make the indexes of before."""
    op.create_index(
        "ix_runs_queue",
        "runs",
        ["project_id", "queue_class", sa.text("status DESC"), "created_at", "id"],
        postgresql_where=sa.text("status IN ('queued', 'recovering')"),
    )
    op.create_index(
        "ix_runs_submissions",
        "runs",
        ["project_id", "created_at"],
        postgresql_where=sa.text("origin IS NULL"),
    )
    op.drop_index("ix_runs_submitted", "runs")
    op.drop_index("ix_runs_waiting", "runs")
