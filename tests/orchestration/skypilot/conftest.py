"""Fixtures of the SkyPilot tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.skypilot.engine_world import engine_world

__all__ = ["engine_world"]


@pytest.fixture
def node(tmp_path: Path) -> object:
    """A node of its own, with our Python as `python3`; see `node_harness`."""
    from node_harness import PYTHON, Node

    made = Node(tmp_path)
    made.tool("python3", f'exec "{PYTHON}" "$@"')
    return made
