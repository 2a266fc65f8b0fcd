"""The identity of a runner, by which it alone takes its name over after a restart.

Revision ID: 1029
Revises: 1028
"""

import sqlalchemy as sa
from alembic import op

revision = "1029"
down_revision = "1028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a runner that registered before has none."""
    op.add_column("runners", sa.Column("identity_hash", sa.String(), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("runners", "identity_hash")
