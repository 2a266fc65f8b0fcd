"""Tags, links and notes of runs, and notes of dataset versions.

Revision ID: 1020
Revises: 1019
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1020"
down_revision = "1019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and the index of tags."""
    op.add_column("runs", sa.Column("tags", JSONB(), server_default="[]", nullable=False))
    op.add_column("runs", sa.Column("links", JSONB(), server_default="{}", nullable=False))
    op.add_column("runs", sa.Column("note", sa.String(), nullable=True))
    op.create_index("ix_runs_tags", "runs", ["tags"], postgresql_using="gin")
    op.add_column("dataset_versions", sa.Column("note", sa.String(), nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("dataset_versions", "note")
    op.drop_index("ix_runs_tags", "runs")
    op.drop_column("runs", "note")
    op.drop_column("runs", "links")
    op.drop_column("runs", "tags")
