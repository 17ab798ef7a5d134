"""The zygote: one small process per driver that keeps one forked shim ready for the next launch.

Forking a 10 MB process costs a fraction of starting an interpreter, and it is done ahead, while the
job before is running. The zygote is run as a script by `launcher.py`, isolated and without
site-packages; it ends when the driver's end of its socket closes, and so does a shim that waits.

Each request is one message with two descriptors: the request itself (a memory file: secrets touch
no disk) and the pipe for the one reply. A waiting shim takes the message; if none can be forked,
the zygote takes it and says why. The end of the pipe without a reply proves that nobody is left who
could still start the job.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
import types
from collections.abc import Callable

_PACKAGES = ("npa", "npa.orchestration", "npa.orchestration.local")

ShimMain = Callable[[socket.socket, int], None]


def borrow_packages(here: str) -> None:
    """Make our modules importable without running any `__init__` of the packages around them."""
    folders = [os.path.dirname(os.path.dirname(here)), os.path.dirname(here), here]
    for name, folder in zip(_PACKAGES, folders, strict=True):
        module = types.ModuleType(name)
        module.__path__ = [folder]
        sys.modules[name] = module


def serve(channel: socket.socket, shim_main: ShimMain) -> None:
    """Keep one shim waiting until the driver closes its end."""
    while True:
        try:
            taken = fork_shim(channel, shim_main)
        except OSError:
            wait_for_message(channel)
            try:
                taken = fork_shim(channel, shim_main)
            except OSError as error:
                if not refuse_one(channel, error.errno or 0):
                    return
                continue
        wait_for_end(taken, channel)
        os.close(taken)
        if hung_up(channel):
            return


def fork_shim(channel: socket.socket, shim_main: ShimMain) -> int:
    """A shim that waits for a message; the pipe ends when it took one, or died."""
    taken, signal_taken = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:
        os.close(taken)
        os.close(signal_taken)
        raise
    if pid == 0:
        try:
            os.close(taken)
            shim_main(channel, signal_taken)
        finally:
            os._exit(70)  # never back into the loop; `shim_main` ends the process by itself
    os.close(signal_taken)
    return taken


def wait_for_end(taken: int, channel: socket.socket) -> None:
    poll = select.poll()
    poll.register(taken, select.POLLIN)
    poll.register(channel, 0)  # only its hang-up
    poll.poll()


def wait_for_message(channel: socket.socket) -> None:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.poll()


def hung_up(channel: socket.socket) -> bool:
    poll = select.poll()
    poll.register(channel, 0)
    return bool(poll.poll(0))


def refuse_one(channel: socket.socket, number: int) -> bool:
    """Answer the next launch with the reason why no shim could be forked; False at the end."""
    data, fds, _flags, _address = socket.recv_fds(channel, 16, 2)
    if len(fds) == 2:
        os.write(fds[1], f"errno {number} fork".encode())
    for fd in fds:
        os.close(fd)
    return bool(data)


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
