"""Disk, descriptors, a store that lies or goes away: a typed error, and nothing is lost."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from behaviour.conftest import TRACE, WAIT, Machine, chain
from chaos.server import Server, s3_process
from faulty_s3 import faulty_s3
from npa.orchestration.state import Lifecycle
from s3server import ACCESS_KEY, SECRET_KEY, options_for

TWO = chain(a=f"{TRACE}; {WAIT}", b=TRACE)


@pytest.fixture
def tiny_disk(machine: Machine) -> Iterator[Path]:
    """256 KiB of tmpfs where the runs, and so the journals, lie."""
    runs = machine.home / "runs"
    runs.mkdir(parents=True, mode=0o700)
    machine.home.chmod(0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(runs)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs privileges that this user does not have")
    yield runs
    machine.go()
    for process in machine.started:
        process.kill()
        process.wait()
    subprocess.run(["umount", "--lazy", str(runs)], check=True)


def fill(folder: Path) -> Path:
    file = folder / "fill"
    with file.open("wb", buffering=0) as sink:
        try:
            while sink.write(b"x" * 1024):
                pass
        except OSError as error:
            assert "No space" in str(error)  # noqa: PT017 - the loop ends only so
    return file


def test_a_disk_that_fills_up_under_the_journal_loses_nothing(
    machine: Machine, tiny_disk: Path
) -> None:
    driver = machine.submit(TWO)
    machine.until_running("a")
    before = len(machine.frames())
    filling = fill(tiny_disk)
    machine.go()
    said = machine.said(driver)
    assert said.code == 1
    assert "no space left to write" in said.err
    assert "UNEXPECTED" not in said.err
    assert before <= len(machine.frames()) <= before + 1  # the chain is whole, and not longer
    assert machine.traces() == ["a"]
    full = machine.npa("workflow", "resume", "r1")
    assert full.code == 1
    assert "no space left" in full.err
    filling.unlink()
    assert machine.npa("workflow", "resume", "r1").code == 0
    assert machine.traces() == ["a", "b"]
    assert machine.state().lifecycle is Lifecycle.COMPLETED


def test_a_full_disk_begins_no_run(machine: Machine, tiny_disk: Path) -> None:
    filling = fill(tiny_disk)
    said = machine.said(machine.submit(TWO))
    assert said.code == 1
    assert "no space left" in said.err
    assert machine.traces() == []
    filling.unlink()
    machine.go()
    assert machine.said(machine.submit(TWO)).code == 0
    assert machine.traces() == ["a", "b"]


@pytest.mark.req("D-04")
def test_a_driver_without_descriptors_waits_and_goes_on(machine: Machine) -> None:
    """It can neither look nor write for a while; it concludes nothing and launches nothing."""
    driver = machine.submit(TWO)
    machine.until_running("a")
    machine.until(lambda: any(a.native_id for a in machine.state().live.values()), "a to be noted")
    soft, hard = resource.prlimit(driver.pid, resource.RLIMIT_NOFILE)
    lowest = 3  # every new descriptor is refused, those that are open stay so
    resource.prlimit(driver.pid, resource.RLIMIT_NOFILE, (lowest, hard))
    frames = len(machine.frames())
    machine.go()
    machine.until(lambda: not machine.tasks(), "a to end")
    starved = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert starved[0] > lowest  # only the driver starves
    machine.until(lambda: _looked_since(driver.pid), "the driver to look in vain")
    assert len(machine.frames()) <= frames + 1
    assert machine.traces() == ["a"]
    resource.prlimit(driver.pid, resource.RLIMIT_NOFILE, (soft, hard))
    said = machine.said(driver)
    assert said.code == 0, said.err
    assert machine.traces() == ["a", "b"]
    assert {len(wave.attempts) for wave in machine.state().waves.values()} == {1}


def _looked_since(pid: int, switches: int = 4) -> bool:
    """Has the process woken up some times since the first call (voluntary context switches)?"""
    text = Path(f"/proc/{pid}/status").read_text()
    now = int(text.partition("voluntary_ctxt_switches:")[2].split()[0])
    begun = _SEEN.setdefault(pid, now)
    return now - begun >= switches


_SEEN: dict[int, int] = {}


def test_a_store_that_ignores_conditional_create_is_refused_and_nothing_is_launched(
    machine: Machine,
) -> None:
    with faulty_s3() as server:
        server.state.ignores_conditions = True
        machine.env |= {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }
        said = machine.said(machine.submit(TWO, "--store", "s3://bucket/prefix/"))
        assert said.code == 1
        assert "does not honour create-if-absent" in said.err
        assert "no run was started" in said.err
        assert server.objects == {}
    assert machine.traces() == []
    assert machine.npa("workflow", "list", "--json").document == []
    assert not (machine.home / "jobs" / "r1").exists() or not any(
        (machine.home / "jobs" / "r1").iterdir()
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_process() as made:
        yield made


@pytest.mark.req("D-04", "E-01")
def test_a_run_outlives_an_outage_of_its_store(machine: Machine, server: Server) -> None:
    """The driver cannot write; it says so, launches nothing, and goes on when the store is back."""
    store = f"{server.uri}outage/"
    machine.env |= server.environment
    machine.options = options_for(server.door.endpoint)
    driver = machine.submit(TWO, "--store", store)
    machine.until_running("a")
    server.door.shut()
    try:
        machine.go()
        said = b""
        while b"nothing is lost" not in said:
            said += os.read(driver.stderr.fileno(), 4096)
        assert machine.traces() == ["a"]
        status = machine.npa("workflow", "status", "r1")
        assert status.code in (1, 2)
        assert "cannot be read" in status.err
    finally:
        server.door.open()
    assert machine.said(driver).code == 0
    assert machine.traces() == ["a", "b"]
    assert machine.state(store=store).lifecycle is Lifecycle.COMPLETED


@pytest.mark.req("E-01")
def test_a_run_goes_on_from_another_home_with_only_its_store(
    machine: Machine, server: Server, tmp_path: Path
) -> None:
    """A home without any memory of the run: the store says all, also where its jobs lie."""
    store = f"{server.uri}moved/"
    machine.env |= server.environment
    machine.options = server.options
    driver = machine.submit(chain(a=TRACE, b=f"{TRACE}; {WAIT}", c=TRACE), "--store", store)
    machine.until_running("b")
    driver.kill()
    driver.wait()
    machine.go()
    machine.until(lambda: not machine.tasks(), "b to end")
    env = {"NPA_CONFIG_DIR": str(tmp_path / "another")}
    assert machine.npa("workflow", "logs", f"{store}r1/", "b", env=env).code == 0
    said = machine.npa("workflow", "resume", f"{store}r1/", env=env)
    assert said.code == 0, said.err
    assert machine.traces() == ["a", "b", "c"]
