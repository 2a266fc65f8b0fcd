"""Indexes of foreign keys: without one, each deleted row reads the whole table that may name it.

Revision ID: 1024
Revises: 1023
"""

from alembic import op

revision = "1024"
down_revision = "1023"
branch_labels = None
depends_on = None

COLUMNS = (
    ("outbox", "project_id"),
    ("slack_links", "key_id"),
    ("slack_link_codes", "project_id"),
    ("slack_link_codes", "key_id"),
    ("slack_requests", "project_id"),
    ("dataset_versions", "project_id"),
    ("dataset_versions", "parent_id"),
    ("dataset_exclusions", "project_id"),
    ("campaign_cells", "run_id"),
    ("issues", "baseline_run_id"),
    ("issues", "after_run_id"),
    ("experiments", "parent_id"),
    ("session_codes", "project_id"),
    ("session_codes", "key_id"),
)


def upgrade() -> None:
    """Create the indexes."""
    for table, column in COLUMNS:
        op.create_index(f"ix_{table}_{column}", table, [column])


def downgrade() -> None:
    """Drop the indexes."""
    for table, column in COLUMNS:
        op.drop_index(f"ix_{table}_{column}", table)
