"""Imported runs have an origin.

Revision ID: 1013
Revises: 1012
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1013"
down_revision = "1012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for the service's own runs."""
    op.add_column("runs", sa.Column("origin", JSONB(), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("runs", "origin")
