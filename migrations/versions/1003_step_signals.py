"""Groups with and without signal, counted per training step and environment.

Revision ID: 1003
Revises: 1002
"""

import sqlalchemy as sa
from alembic import op

revision = "1003"
down_revision = "1002"
branch_labels = None
depends_on = None

COUNTS = ("num_rollouts", "num_graded", "num_groups", "num_mixed", "num_all_zero", "num_all_one")


def upgrade() -> None:
    """Create the table, empty for the steps of before."""
    op.create_table(
        "step_signals",
        sa.Column("run_id", sa.String(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("step", sa.Integer(), primary_key=True),
        sa.Column("env_key", sa.String(), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in COUNTS),
        sa.Column("score_sum", sa.Float(), nullable=False),
        sa.Column("variance_sum", sa.Float(), nullable=False),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("step_signals")
