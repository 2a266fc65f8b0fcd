"""Evaluations say how they ended before all of their tasks.

Revision ID: 1011
Revises: 1010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1011"
down_revision = "1010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for the evaluations of before: they were complete."""
    op.add_column("evals", sa.Column("stopped_early", JSONB(), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("evals", "stopped_early")
