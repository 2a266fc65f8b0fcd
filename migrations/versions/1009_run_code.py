"""The code of the service that a run was submitted to.

Revision ID: 1009
Revises: 1008
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1009"
down_revision = "1008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("runs", sa.Column("code", JSONB(), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("runs", "code")
