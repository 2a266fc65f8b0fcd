"""Files of other trainers as run specs."""
