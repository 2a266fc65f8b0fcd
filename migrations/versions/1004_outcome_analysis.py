"""Columns of outcomes that analysis reads: thought, tool errors, weights, durations by part.

Revision ID: 1004
Revises: 1003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1004"
down_revision = "1003"
branch_labels = None
depends_on = None

COLUMNS = {
    "difficulty": sa.Integer(),
    "modality": sa.String(),
    "verifier_execution_id": sa.String(),
    "tool_errors": JSONB(),
    "num_thinking_tokens": sa.Integer(),
    "first_weight_version": sa.Integer(),
    "last_weight_version": sa.Integer(),
    "reset_s": sa.Float(),
    "call_s": sa.Float(),
    "verification_s": sa.Float(),
}


def upgrade() -> None:
    """Add the columns, empty for the outcomes of before."""
    for name, kind in COLUMNS.items():
        op.add_column("outcomes", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    for name in COLUMNS:
        op.drop_column("outcomes", name)
