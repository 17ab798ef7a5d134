"""Identities of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from npa.target.host import identity_of, is_alive, own_identity, this_host


def test_a_process_is_itself_and_no_other() -> None:
    own = own_identity()
    assert own.pid == os.getpid()
    assert is_alive(own.pid, own.start_ticks, own.boot_id)
    assert not is_alive(own.pid, own.start_ticks + 1, own.boot_id)
    assert not is_alive(own.pid, own.start_ticks, "another boot")
    assert own.boot_id == this_host().boot_id


def test_a_pid_that_nobody_has_is_no_process() -> None:
    assert identity_of(2**22 + 1) is None  # above PID_MAX_LIMIT


def test_a_zombie_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identity_of(child.pid)
    assert identity is not None
    assert child.stdin is not None
    child.stdin.close()
    # Wait for the end without reaping: it is a zombie until `wait` below.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(identity.pid, identity.start_ticks, identity.boot_id)
    child.wait()


def test_a_command_with_brackets_and_blanks_is_read_right(tmp_path: object) -> None:
    program = "import ctypes; ctypes.CDLL(None).prctl(15, b'a) Z (b'); print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    identity = identity_of(child.pid)
    assert identity is not None
    assert (
        0
        < identity.start_ticks / os.sysconf("SC_CLK_TCK")
        <= time.clock_gettime(time.CLOCK_BOOTTIME)
    )
    child.stdin.close()
    child.stdout.close()
    child.wait()
