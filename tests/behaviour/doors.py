"""A store's door that holds writers of the journal until several of them are past their read."""

from __future__ import annotations

import socket
import threading

from chaos.server import Door


class Turnstile(Door):
    """Holds each new frame until `party` of them wait, then lets them race; later ones pass."""

    def __init__(self, target: int, party: int) -> None:
        self._barrier = threading.Barrier(party)
        self.armed = False
        super().__init__(target)

    def before(self, client: socket.socket) -> None:
        if not self.armed:
            return
        line = client.recv(1 << 16, socket.MSG_PEEK).partition(b"\r\n")[0]
        if line.startswith(b"PUT ") and b"/npa-workflow/journal/" in line:
            self._barrier.wait(60)
            self.armed = False
