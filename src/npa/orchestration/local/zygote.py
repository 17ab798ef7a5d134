"""The zygote: one small process per driver that forks a shim for each launch.

Forking a 10 MB process costs a fraction of starting an interpreter, and of forking a driver. It
is run as a script by `launcher.py` with an isolated interpreter and without site-packages; it ends
when the driver's end of its socket closes. Each request is one message with two descriptors: the
request itself (a memory file: secrets touch no disk) and the pipe for the one reply. The pipe's
end without a reply proves that nobody who could still start the job is left.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import types
from collections.abc import Callable

_PACKAGES = ("npa", "npa.orchestration", "npa.orchestration.local")


def borrow_packages(here: str) -> None:
    """Make our modules importable without running any `__init__` of the packages around them."""
    folders = [os.path.dirname(os.path.dirname(here)), os.path.dirname(here), here]
    for name, folder in zip(_PACKAGES, folders, strict=True):
        module = types.ModuleType(name)
        module.__path__ = [folder]
        sys.modules[name] = module


def serve(channel: socket.socket, shim_main: Callable[[int, int], None]) -> None:
    """Fork a shim for each request until the driver closes its end."""
    while True:
        data, fds, _flags, _address = socket.recv_fds(channel, 16, 2)
        if not data:
            return
        if len(fds) == 2:
            fork_shim(channel, fds[0], fds[1], shim_main)
        for fd in fds:
            os.close(fd)


def fork_shim(
    channel: socket.socket, request: int, reply: int, shim_main: Callable[[int, int], None]
) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        os.write(reply, f"errno {error.errno} fork".encode())
        return
    if pid == 0:
        try:
            channel.close()
            shim_main(request, reply)
        finally:
            os._exit(70)  # never back into the loop; `shim_main` ends the process by itself


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    borrow_packages(os.path.dirname(os.path.abspath(__file__)))
    shim = importlib.import_module("npa.orchestration.local.shim")
    shim.prepare()
    channel = socket.socket(fileno=int(sys.argv[1]))
    gc.collect()
    gc.freeze()
    gc.disable()
    serve(channel, shim.main)


if __name__ == "__main__":
    main()
