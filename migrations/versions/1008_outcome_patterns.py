"""Failure patterns of outcomes, with the version of the detectors.

Revision ID: 1008
Revises: 1007
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1008"
down_revision = "1007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, empty for the outcomes of before."""
    op.add_column("outcomes", sa.Column("patterns", JSONB(), nullable=True))
    op.add_column("outcomes", sa.Column("patterns_version", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("outcomes", "patterns")
    op.drop_column("outcomes", "patterns_version")
