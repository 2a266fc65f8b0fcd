"""how often in a row a cluster that is up did not have our job

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "clusters", sa.Column("num_jobless", sa.Integer(), nullable=False, server_default="0")
    )
    op.alter_column("clusters", "num_jobless", server_default=None)


def downgrade() -> None:
    op.drop_column("clusters", "num_jobless")
