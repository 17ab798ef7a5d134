"""Write the compiled form of the built-in catalogues: `python -m npa.catalog.compile`."""

from __future__ import annotations

import json
from pathlib import Path

from npa.catalog.loader import COMPILED, built_in_sources, compile_sources


def main() -> None:
    """Compile every YAML file of the `data` folder beside this module."""
    target = Path(__file__).parent / "data" / COMPILED
    document = compile_sources(built_in_sources())
    target.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
