"""what machines cost by their clouds' catalogs, clusters ended by hand

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "price_quotes",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("candidate", postgresql.JSONB(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fetched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("offers", postgresql.JSONB(), nullable=True),
        sa.Column("problem", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_price_quotes")),
    )
    op.add_column(
        "stray_clusters", sa.Column("end_asked_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.add_column("stray_clusters", sa.Column("end_asked_by", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("stray_clusters", "end_asked_by")
    op.drop_column("stray_clusters", "end_asked_at")
    op.drop_table("price_quotes")
