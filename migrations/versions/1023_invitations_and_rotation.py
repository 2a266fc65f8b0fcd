"""Memberships that a person has accepted, and signing secrets of webhooks before a rotation.

Revision ID: 1023
Revises: 1022
"""

import sqlalchemy as sa
from alembic import op

revision = "1023"
down_revision = "1022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; who is a member already has accepted."""
    op.add_column("members", sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE members SET accepted_at = created_at")
    op.add_column("webhooks", sa.Column("previous_key_id", sa.String(), nullable=True))
    op.add_column("webhooks", sa.Column("previous_ciphertext", sa.LargeBinary(), nullable=True))
    op.add_column(
        "webhooks", sa.Column("previous_until", sa.DateTime(timezone=True), nullable=True)
    )


def downgrade() -> None:
    """Drop the columns."""
    for column in ("previous_until", "previous_ciphertext", "previous_key_id"):
        op.drop_column("webhooks", column)
    op.drop_column("members", "accepted_at")
