"""The miniature apps, one folder each."""
