"""The second engine: SkyPilot 0.12.2 in an environment of its own, one owned API server a run."""
