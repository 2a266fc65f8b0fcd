"""Hosts of secrets: the servers to which the spec of a run may send each.

Revision ID: 1022
Revises: 1021
"""

import sqlalchemy as sa
from alembic import op

revision = "1022"
down_revision = "1021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; no secret of before has a host."""
    op.add_column(
        "project_secrets",
        sa.Column("hosts", sa.ARRAY(sa.String()), server_default=sa.text("'{}'"), nullable=False),
    )


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("project_secrets", "hosts")
