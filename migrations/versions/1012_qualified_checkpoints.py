"""Checkpoints have the result of their trial.

Revision ID: 1012
Revises: 1011
"""

import sqlalchemy as sa
from alembic import op

revision = "1012"
down_revision = "1011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, empty for the checkpoints of before: they were not tried."""
    op.add_column("checkpoints", sa.Column("qualification", sa.String(), nullable=True))
    op.add_column("checkpoints", sa.Column("refusal", sa.String(), nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("checkpoints", "refusal")
    op.drop_column("checkpoints", "qualification")
