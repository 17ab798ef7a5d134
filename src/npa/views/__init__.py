"""Views: pure projections of (journal, fresh observations). Shown or written, never read back."""
