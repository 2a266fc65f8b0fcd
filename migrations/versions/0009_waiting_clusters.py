"""what clusters wait for, and which do not go

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TEXTS = ("waits_for", "down_request_id")
TIMES = ("ending_at", "end_warned_at")


def upgrade() -> None:
    for name in TEXTS:
        op.add_column("clusters", sa.Column(name, sa.String(), nullable=True))
    for name in TIMES:
        op.add_column("clusters", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE clusters SET ending_at = now() WHERE state = 'ending'")


def downgrade() -> None:
    for name in (*TEXTS, *TIMES):
        op.drop_column("clusters", name)
