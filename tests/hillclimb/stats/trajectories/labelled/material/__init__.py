"""Words and data of which scripts are made."""
