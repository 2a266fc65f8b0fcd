"""Who has a channel of Slack watch a run: the messages end with the key.

Revision ID: 1033
Revises: 1029
"""

import sqlalchemy as sa
from alembic import op

revision = "1033"
down_revision = "1032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; who had a channel watch before is not known."""
    op.add_column("slack_threads", sa.Column("watcher", sa.String(), nullable=True))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("slack_threads", "watcher")
