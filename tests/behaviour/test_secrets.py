"""A canary secret reaches the tasks that it is for, and is found nowhere else."""

from __future__ import annotations

import base64
import os
import secrets
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

from behaviour.conftest import TRACE, WAIT, Machine, chain
from chaos.server import s3_process
from npa.observation import Found
from npa.storage import Store, open_store
from s3server import SECRET_KEY

CANARY = f"canary/{secrets.token_hex(6)}+Zq==&x"


def forms(secret: str) -> list[bytes]:
    """The secret as it is, URL-encoded, and in base64 at each of its three alignments."""
    found = [secret.encode(), quote(secret, safe="").encode()]
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + secret.encode()).rstrip(b"=")
        found.append(text[(0, 2, 3)[shift] : len(text) - 1])
    return found


def leaks(data: bytes) -> bool:
    return any(form in data for secret in (CANARY, SECRET_KEY) for form in forms(secret))


class CommandLines:
    """Collects the argv of every process, over and over, while a run goes on."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._collect)

    def __enter__(self) -> CommandLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _collect(self) -> None:
        while not self._over.wait(0.03):
            for entry in os.scandir("/proc"):
                if entry.name.isdigit():
                    try:
                        self.seen.add(Path(entry.path, "cmdline").read_bytes())
                    except OSError:
                        continue


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def objects(store: Store) -> dict[str, bytes]:
    listed = store.list()
    assert isinstance(listed, Found)
    blobs = {info.key: store.get(info.key) for info in listed.value}
    return {key: blob.value.data for key, blob in blobs.items() if isinstance(blob, Found)}


@pytest.mark.req("A-11")
def test_a_secret_is_found_nowhere_outside_of_its_tasks(machine: Machine) -> None:
    """Home, store, output of every command, argv of every process, errors: no form of it."""
    text = chain(
        a=f'case "$A_TOKEN" in canary*) echo has it;; esac; {TRACE}',
        b=f"{TRACE}; test -e $WORK/go || exit 3",
        c=TRACE,
    )
    with s3_process() as server, CommandLines() as argv:
        store = f"{server.uri}canary/"
        machine.env |= {**server.environment, "A_TOKEN": CANARY}
        words = ("--store", store, "--secret-env", "A_TOKEN")
        said = [machine.said(machine.submit(text, *words))]
        assert said[0].code == 1  # b fails, and the error text is looked at too
        machine.go()
        said += [machine.npa("workflow", *line) for line in _commands()]
        said.append(machine.npa("workflow", "resume", "r1", env={"A_TOKEN": ""}))
        assert said[-1].code == 64
        said.append(machine.npa("workflow", "resume", "r1"))
        assert said[-1].code == 0
        said += [machine.npa("workflow", *line) for line in _commands()]
        wrong = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
        said.append(machine.npa("workflow", "status", "r1", env=wrong))
        assert said[-1].code != 0
        said.append(machine.npa("workflow", "status", "r1", env={**wrong, "NPA_DEBUG": "1"}))
        kept = objects(open_store(store, server.options))
    assert any("has it" in one.out for one in said)
    assert len(kept) > 5
    assert [key for key, data in kept.items() if leaks(data)] == []
    files = contents(machine.home)
    assert len(files) > 5
    assert [path for path, data in files.items() if leaks(data)] == []
    assert [one for one in said if leaks((one.out + one.err).encode())] == []
    assert len(argv.seen) > 5
    assert [line for line in argv.seen if leaks(line)] == []


def _commands() -> list[tuple[str, ...]]:
    return [
        ("status", "r1"),
        ("status", "r1", "--json"),
        ("logs", "r1"),
        ("artifacts", "r1", "--json"),
        ("list", "--json"),
    ]


@pytest.mark.req("A-11")
def test_a_secret_of_a_detached_driver_is_not_in_its_log_or_argv(machine: Machine) -> None:
    machine.env["A_TOKEN"] = CANARY
    text = chain(a=f"{TRACE}; {WAIT}")
    with CommandLines() as argv:
        begun = machine.said(machine.submit(text, "--detach", "--secret-env", "A_TOKEN"))
        assert begun.code == 0, begun.err
        machine.until_running("a")
        machine.go()
        watched = machine.npa("workflow", "status", "r1", "--watch", "--interval", "0.1")
    assert watched.code == 0
    assert any(b"drive-detached" in line for line in argv.seen)
    assert [line for line in argv.seen if leaks(line)] == []
    files = contents(machine.home)
    assert any(path.name == "driver.log" for path in files)
    assert [path for path, data in files.items() if leaks(data)] == []


def test_every_form_of_a_secret_would_be_found() -> None:
    """The search itself can fail: each form is seen, at each alignment, and nothing else is."""
    for before in (b"", b"x", b"xy", b"xyz"):
        whole = before + CANARY.encode() + b" and more"
        assert leaks(whole)
        assert leaks(base64.b64encode(whole))
        assert leaks(quote(whole.decode(), safe="").encode())
    assert not leaks(b"canary")
