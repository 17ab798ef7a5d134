"""Where the bed lies on its machine. All of it is removed by `bed.py purge`."""

from __future__ import annotations

from pathlib import Path

USER = "npabed"
USER_HOME = Path("/home/npabed")
OPT = Path("/opt/npa-bed")  # survives `down`: SkyPilot's environment, the nodes' shims
BIN = OPT / "bin"
ENVIRONMENT = OPT / "skypilot"
NODE = OPT / "node"  # the Python of the nodes, as an image of theirs would have it
ETC = Path("/etc/npa-bed")
STATE = Path("/var/lib/npa-bed")
RUN = Path("/run/npa-bed")
LOG = Path("/var/log/npa-bed")
BED_JSON = RUN / "bed.json"  # exists while the bed is up; tells tests what to use
