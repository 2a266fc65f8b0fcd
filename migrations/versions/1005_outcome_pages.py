"""Indexes of outcomes for pages of rollouts: of a run, newest step first, and of a task.

Revision ID: 1005
Revises: 1004
"""

from alembic import op

revision = "1005"
down_revision = "1004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the indexes."""
    op.create_index("ix_outcomes_page", "outcomes", ["run_id", "step"])
    op.create_index("ix_outcomes_task", "outcomes", ["run_id", "task_key", "step"])


def downgrade() -> None:
    """Drop the indexes."""
    op.drop_index("ix_outcomes_task", "outcomes")
    op.drop_index("ix_outcomes_page", "outcomes")
