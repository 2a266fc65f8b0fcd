"""Evidence of `hillclimb accept`: paths that were seen to work on this installation.

Revision ID: 1034
Revises: 1033
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "1034"
down_revision = "1033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    json = postgresql.JSONB(astext_type=sa.Text())
    op.create_table(
        "acceptances",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("paths", json, nullable=False),
        sa.Column("versions", json, nullable=False),
        sa.Column("observations", json, nullable=False),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("recorded_by", sa.String(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name="pk_acceptances"),
        sa.UniqueConstraint("target", "subject", name="uq_acceptances_target_subject"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("acceptances")
