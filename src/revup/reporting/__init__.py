"""Pages, figures, tables, progress."""
