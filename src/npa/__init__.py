"""npa: a workflow engine for robotics and physical-AI teams."""

__version__ = "0.1.0"
