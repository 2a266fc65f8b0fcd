"""which process of each node of a gang was given the secrets

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "clusters",
        sa.Column("exchange_members", postgresql.JSONB(), nullable=False, server_default="{}"),
    )
    op.alter_column("clusters", "exchange_members", server_default=None)


def downgrade() -> None:
    op.drop_column("clusters", "exchange_members")
