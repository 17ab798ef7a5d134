"""A stand-in for SkyPilot's API server, as far as a session looks at it: process, port, health.

`make_interpreter` builds an environment whose `python -m sky.server.server` is this: it starts in
a tenth of a second, has a worker and, if asked, a jobs controller that outlives it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SERVER = """
import argparse, http.server, json, os, pathlib, subprocess, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--host"); parser.add_argument("--port", type=int)
parser.add_argument("--metrics-port", type=int)
arguments = parser.parse_args()
how = pathlib.Path(__file__).with_name("how")
how = how.read_text() if how.exists() else ""
if "die" in how:
    sys.exit("no, said the server")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"status": "unhealthy" if "sick" in how else "healthy",
                           "version": "0.12.1" if "old" in how else "0.12.2"}).encode()
        self.send_response(200); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_):
        pass
if "hang" in how:
    time.sleep(600)
idle = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(idle)
if "controller" in how:
    subprocess.Popen([sys.executable, "-m", "sky.jobs.controller"], start_new_session=True)
host = "0.0.0.0" if "open" in how else arguments.host
http.server.ThreadingHTTPServer((host, arguments.port), Handler).serve_forever()
"""
CONTROLLER = "import time\ntime.sleep(600)\n"


def make_interpreter(folder: Path, how: str = "") -> Path:
    """An environment with the stand-in in it. `how`: words of die, sick, old, hang, controller."""
    packages = folder / f"lib/python3.{sys.version_info[1]}/site-packages"
    for name in ("sky", "sky/server", "sky/jobs"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text("")
    (packages / "sky/server/server.py").write_text(SERVER)
    (packages / "sky/server/how").write_text(how)
    (packages / "sky/jobs/controller.py").write_text(CONTROLLER)
    (folder / "bin").mkdir()
    base = getattr(sys, "_base_executable", "") or sys.executable
    (folder / "bin/python").symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {os.path.dirname(base)}\n")  # noqa: PTH120
    return folder / "bin/python"
