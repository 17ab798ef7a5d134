"""The run's only truth: frames created once, chained by hash, never overwritten."""
