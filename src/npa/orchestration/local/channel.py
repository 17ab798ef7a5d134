"""One message of the driver with its descriptors. Standard library only (the shim uses it)."""

from __future__ import annotations

import array
import socket

DESCRIPTORS = 2


def receive(channel: socket.socket, flags: int = 0) -> tuple[bytes, list[int]]:
    """Wait for a message; its bytes and its descriptors, which no process of a job inherits.

    As `socket.recv_fds`, which drops its flags. Raises OSError.
    """
    fds = array.array("i")
    room = socket.CMSG_SPACE(DESCRIPTORS * fds.itemsize)
    data, extra, _flags, _address = channel.recvmsg(16, room, flags | socket.MSG_CMSG_CLOEXEC)
    for level, kind, body in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(body[: len(body) - len(body) % fds.itemsize])
    return data, list(fds)
