"""How one rank's process is started: argv directly, or shell text as one argument of a shell.

`posix_spawn` does not copy the shim's memory and reports why an `exec` failed. Standard library
only (the shim uses it).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence

_DEFAULT_SIGNALS = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}


def search_path(env: Mapping[str, str]) -> list[str]:
    """Folders of the child's PATH; an empty entry is the working folder, as everywhere."""
    return [folder or "." for folder in env.get("PATH", os.defpath).split(os.pathsep)]


def shell_argv(text: str, env: Mapping[str, str]) -> list[str]:
    """The script is one argument: nothing quotes it again and nothing is put before it."""
    for folder in search_path(env):
        if os.access(f"{folder}/bash", os.X_OK):
            return [f"{folder}/bash", "-c", text]
    return ["/bin/sh", "-c", text]


def spawn(argv: Sequence[str], env: Mapping[str, str], log: int) -> int:
    """Start `argv` in its own process group with both outputs into `log`; its pid.

    Raises OSError as `execvp` would: ENOENT if no folder of the child's own PATH has it, EACCES if
    one has it and it may not be executed. ValueError for a NUL byte in an argument or variable.
    """
    program = argv[0]
    if "/" in program:
        return _spawn(program, argv, env, log)
    denied = False
    for folder in search_path(env):
        path = f"{folder}/{program}"
        try:
            os.stat(path)  # a look costs a hundredth of a process that finds nothing to execute
            return _spawn(path, argv, env, log)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            denied = True
    number = errno.EACCES if denied else errno.ENOENT
    raise OSError(number, os.strerror(number), program)


def _spawn(path: str, argv: Sequence[str], env: Mapping[str, str], log: int) -> int:
    return os.posix_spawn(
        path,
        list(argv),
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ],
        setpgroup=0,
        setsigmask=[],
        setsigdef=_DEFAULT_SIGNALS,
    )
