"""The zygote: one small process per driver that keeps a forked shim ready for the next launch.

Forking a 10 MB process costs a fraction of starting an interpreter, and it is done ahead, while the
job before is running. A shim whose job ended well waits for the next one, so that a chain of steps
needs no fork at all. The zygote is run as a script by `launcher.py`, isolated and without
site-packages; it ends when the driver's end of its socket closes, and so does a shim that waits.

Each shim that waits holds a shared lock on one file of memory. The zygote waits for the exclusive
lock: it gets it when no shim waits any more, however they went, and forks the next.

Each request is one message with two descriptors: the request itself (a memory file: secrets touch
no disk) and the pipe for the one reply. A waiting shim takes the message; if none can be forked,
the zygote takes it and says why. The end of the pipe without a reply proves that nobody is left who
could still start the job.
"""

from __future__ import annotations

import array
import fcntl
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

IDLE_SECONDS = 5
"""How long a shim that has served waits for its next job; so a burst leaves no crowd behind."""

ShimMain = Callable[[socket.socket, int], None]


def borrow_packages(here: str) -> None:
    """Make our modules importable without running any `__init__` of the packages around them."""
    folders = [os.path.dirname(os.path.dirname(here)), os.path.dirname(here), here]
    for name, folder in zip(_PACKAGES, folders, strict=True):
        module = types.ModuleType(name)
        module.__path__ = [folder]
        sys.modules[name] = module


def serve(channel: socket.socket, shim_main: ShimMain) -> None:
    """Keep at least one shim waiting until the driver closes its end."""
    waiting = os.memfd_create("npa-waiting", os.MFD_CLOEXEC)
    while True:
        fcntl.flock(waiting, fcntl.LOCK_EX)
        fcntl.flock(waiting, fcntl.LOCK_UN)
        if hung_up(channel):
            return
        try:
            fork_shim(channel, waiting, shim_main)
        except OSError:
            wait_for_message(channel)
            try:
                fork_shim(channel, waiting, shim_main)
            except OSError as error:
                if not refuse_one(channel, error.errno or 0):
                    return


def fork_shim(channel: socket.socket, waiting: int, shim_main: ShimMain) -> None:
    """A shim that waits for a message; it is born with its lock, so none is forked twice."""
    lock = os.open(f"/proc/self/fd/{waiting}", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.fork() == 0:
            try:
                os.close(waiting)
                shim_main(channel, lock)
            finally:
                os._exit(70)  # never back into the loop; `shim_main` ends the process by itself
    finally:
        os.close(lock)


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
    from npa.orchestration.local.channel import DESCRIPTORS, receive

    try:
        data, fds = receive(channel, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True  # a shim that became free took it
    if len(fds) == DESCRIPTORS:
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
    channel.set_inheritable(False)  # the processes of jobs have no business with it
    patience = array.array("l", [IDLE_SECONDS, 0]).tobytes()  # a `struct timeval`
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
    gc.collect()
    gc.freeze()
    gc.disable()
    serve(channel, shim.main)
    os._exit(0)  # nothing to tidy up, and the driver waits


if __name__ == "__main__":
    main()
