"""The terminal: tables, texts and colours, exit codes, numbers that options accept."""
