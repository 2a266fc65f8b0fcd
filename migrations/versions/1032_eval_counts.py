"""The counts of an evaluation's tasks, beside its outcomes.

Revision ID: 1032
Revises: 1029
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "1032"
down_revision = "1031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; evaluations from before have none, and are counted at each read."""
    counts = sa.Column("counts", postgresql.JSONB(astext_type=sa.Text()), nullable=True)
    op.add_column("evals", counts)


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("evals", "counts")
