"""The tools that a workflow may name, as data: entries, their schema, and how they are loaded."""
