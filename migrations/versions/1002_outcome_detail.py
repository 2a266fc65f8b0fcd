"""Why a rollout has no grade, in words: a column of outcomes.

Revision ID: 1002
Revises: 1001
"""

import sqlalchemy as sa
from alembic import op

revision = "1002"
down_revision = "1001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for the outcomes of before."""
    op.add_column("outcomes", sa.Column("detail", sa.String(), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("outcomes", "detail")
