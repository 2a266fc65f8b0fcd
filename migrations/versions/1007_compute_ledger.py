"""The ledger of compute: one row for each step and evaluation of each attempt.

Revision ID: 1007
Revises: 1006
"""

import sqlalchemy as sa
from alembic import op

revision = "1007"
down_revision = "1006"
branch_labels = None
depends_on = None

COUNTS = ("num_rollouts", "num_learned", "num_resampled", "num_ungraded", "num_lost_tries")
TOKENS = ("num_sampled_tokens", "num_prefill_tokens", "num_cached_tokens", "num_trained_tokens")
FLOPS = ("rollout_flops", "train_flops")


def upgrade() -> None:
    """Create the table, empty for the steps of before."""
    op.create_table(
        "compute_ledger",
        sa.Column("run_id", sa.String(), sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True),
        sa.Column("step", sa.Integer(), primary_key=True),
        sa.Column("kind", sa.String(), primary_key=True),
        sa.Column("decoding", sa.String(), primary_key=True),
        sa.Column("is_complete", sa.Boolean(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in COUNTS),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in TOKENS),
        *(sa.Column(name, sa.Float(), nullable=True) for name in FLOPS),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("compute_ledger")
