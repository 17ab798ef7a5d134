"""Make it happen: observe, decide, effect. Knows what a workflow means, not how it is written."""
