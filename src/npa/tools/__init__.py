"""Small tools that the catalogue names and that run inside a task.

They read JSON artifacts of earlier steps and write JSON artifacts; nothing else is assumed.
"""
