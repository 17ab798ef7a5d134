"""What fits this machine, now or ever, and which GPUs a rank gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npa.orchestration.engine import Launched, Phase, RoomKind
from npa.orchestration.local import inventory as module
from npa.orchestration.local.inventory import (
    Gpu,
    Inventory,
    Usage,
    assign,
    demand,
    impossible,
    matching,
    read_inventory,
    room,
)
from npa.workflow.step import Profile
from orchestration.local.conftest import MakeEngine
from orchestration.local.kit import job, settled, step

SMALL = Inventory(2.0, 8.0)
H100 = "NVIDIA H100 80GB HBM3"
GPUS = Inventory(16.0, 64.0, tuple(Gpu(index, H100) for index in range(4)))


@pytest.mark.parametrize(
    ("profile", "machine", "reason"),
    [
        (Profile(cpus=64), SMALL, "asks for 64 cpus, this machine has 2"),
        (
            Profile(cpus=1.5, num_nodes=2),
            SMALL,
            "asks for 2 ranks on this one machine, together 3 cpus, this machine has 2",
        ),
        (Profile(memory_gib=9), SMALL, "asks for 9 GiB of memory, this machine has 8"),
        (
            Profile(accelerator="H100", accelerator_count=1),
            SMALL,
            "asks for H100:1, this machine has no GPU",
        ),
        (
            Profile(accelerator="H100", accelerator_count=4, num_nodes=2),
            GPUS,
            f"asks for 2 ranks with H100:4, this machine has 4 GPU ({H100})",
        ),
        (
            Profile(accelerator="A100", accelerator_count=1),
            GPUS,
            f"asks for A100:1, this machine has 4 GPU ({H100})",
        ),
        (Profile(), SMALL, ""),
        (Profile(num_nodes=8), SMALL, ""),
        (Profile(accelerator="H100", accelerator_count=2, num_nodes=2), GPUS, ""),
    ],
)
def test_what_can_never_run_is_said_in_words(
    profile: Profile, machine: Inventory, reason: str
) -> None:
    assert impossible(profile, machine) == reason


@pytest.mark.parametrize(
    ("name", "product", "same"),
    [
        ("H100", H100, True),
        ("h100", H100, True),
        ("H100-80GB", H100, True),
        ("A100-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("A100-80GB", "NVIDIA A100-SXM4-40GB", False),
        ("L40", "NVIDIA L40S", False),
        ("L40S", "NVIDIA L40S", True),
        ("RTXPRO6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("", H100, False),
    ],
)
def test_accelerator_names_match_whole_words(name: str, product: str, same: bool) -> None:
    assert bool(matching(name, [Gpu(0, product)])) is same


def test_ranks_get_gpus_of_their_own() -> None:
    profile = Profile(accelerator="H100", accelerator_count=1, num_nodes=2)
    assert assign(profile, GPUS, {1}) == ((0,), (2,))
    assert assign(profile, GPUS, {0, 1, 2}) is None
    assert assign(Profile(num_nodes=2), GPUS, ()) == ((), ())


profiles = st.builds(
    Profile,
    cpus=st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0]),
    memory_gib=st.sampled_from([0.0, 1.0, 4.0]),
    num_nodes=st.integers(1, 3),
    accelerator=st.sampled_from(["", "H100"]),
    accelerator_count=st.integers(0, 2),
)


@given(st.lists(profiles, min_size=1, max_size=4), st.integers(1, 8), st.integers(0, 4))
def test_what_fits_stays_within_the_machine(asked: list[Profile], cpus: int, gpus: int) -> None:
    machine = Inventory(float(cpus), 8.0, GPUS.gpus[:gpus])
    steps = [step(f"s{number}") for number, _ in enumerate(asked)]
    steps = [
        type(one)(one.path, one.state, one.command, profile)
        for one, profile in zip(steps, asked, strict=True)
    ]
    verdict = room(steps, machine, Usage())
    never = any(impossible(profile, machine) for profile in asked)
    assert (verdict.kind is RoomKind.NEVER) == never
    if verdict.kind is RoomKind.FITS:
        needs = [demand(profile, machine) for profile in asked]
        assert sum(need[0] for need in needs) <= machine.cpus
        assert sum(need[1] for need in needs) <= machine.memory_gib
    else:
        assert verdict.reason
    if len(asked) == 1 and not never:
        assert verdict.kind is RoomKind.FITS  # an idle machine takes whatever can run at all


def test_live_jobs_make_the_machine_busy_until_they_end(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine(SMALL)
    os.mkfifo(tmp_path / "go")
    first = job("a", f"cat {tmp_path}/go", profile=Profile(cpus=2))
    assert engine.room([first.tasks[0].step]).kind is RoomKind.FITS
    assert isinstance(engine.launch(first), Launched)
    for one in (engine, make_engine(SMALL)):  # a later driver counts what it finds
        busy = one.room([step("b")])
        assert busy.kind is RoomKind.BUSY
        assert busy.reason == "`b` needs 1 cpus, 0 of 2 are free"
    later = make_engine(SMALL)
    assert later.room([step("b")]).kind is RoomKind.BUSY
    (tmp_path / "go").write_text("")
    assert settled(engine, first).phase is Phase.SUCCEEDED
    for one in (engine, later):
        assert one.room([step("b")]).kind is RoomKind.FITS


def test_preflight_names_what_can_never_run(make_engine: MakeEngine) -> None:
    engine = make_engine(SMALL)
    steps = [
        step("big", "true", profile=Profile(cpus=64)),
        step("typo", argv=("no-such-program",)),
        step("made", argv=("/not/yet/made",)),
        step("installed", argv=("no-such-program",), setup="install it"),
        step("good", argv=("sh", "-c", "true")),
    ]
    found = [(one.path, one.code, one.blocking) for one in engine.preflight(steps)]
    assert found == [
        ("big", "IMPOSSIBLE_SHAPE", True),
        ("typo", "COMMAND_NOT_FOUND", True),
        ("made", "COMMAND_NOT_FOUND", False),
        ("installed", "COMMAND_NOT_FOUND", False),
    ]


# -- reading the machine ----------------------------------------------------------------------


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal: 16777216 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_this_machine_can_be_read() -> None:
    found = read_inventory({})
    assert found.cpus > 0
    assert found.memory_gib > 0


@pytest.mark.parametrize(
    ("files", "cpus", "memory"),
    [
        ({}, 8.0, 16.0),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/a/b/memory.max": "1073741824\n",
                "sys/fs/cgroup/a/memory.max": "max\n",
            },
            1.5,
            1.0,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/m\n2:cpu,cpuacct:/c\n",
                "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/m/memory.limit_in_bytes": "2147483648\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            2.0,
            2.0,
        ),
    ],
)
def test_limits_of_control_groups_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    cpus: float,
    memory: float,
) -> None:
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _pid: set(range(8)))
    found = read_inventory({"PATH": ""}, machine(tmp_path, files))
    assert (found.cpus, found.memory_gib) == (cpus, memory)


def test_gpus_come_from_nvidia_smi(tmp_path: Path) -> None:
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho '0, {H100}'; echo '1, {H100}'\n")
    tool.chmod(0o700)
    env = {"PATH": str(tool.parent)}
    root = machine(tmp_path / "root", {})
    assert read_inventory(env, root).gpus == (Gpu(0, H100), Gpu(1, H100))
    assert read_inventory({**env, "CUDA_VISIBLE_DEVICES": "1"}, root).gpus == (Gpu(1, H100),)
    assert read_inventory({**env, "CUDA_VISIBLE_DEVICES": ""}, root).gpus == ()


def test_gpus_come_from_the_driver_if_the_tool_fails(tmp_path: Path) -> None:
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o700)
    file = "proc/driver/nvidia/gpus/0000:01:00.0/information"
    root = machine(tmp_path / "root", {file: f"Model: \t\t {H100}\nIRQ: 1\n"})
    assert read_inventory({"PATH": str(tool.parent)}, root).gpus == (Gpu(0, H100),)
