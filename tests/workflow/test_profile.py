"""Spellings and units of resource profiles."""

from __future__ import annotations

import pytest

from npa.workflow.profile import (
    ProfileError,
    parse_accelerators,
    parse_cpus,
    parse_num_nodes,
    parse_profile,
    parse_size,
    profile_problems,
)


@pytest.mark.parametrize(
    ("value", "parsed"),
    [(4, (4.0, False)), ("4", (4.0, False)), ("4+", (4.0, True)), (0.5, (0.5, False))],
)
def test_cores(value: object, parsed: tuple[float, bool]) -> None:
    assert parse_cpus(value) == parsed


@pytest.mark.parametrize(
    ("value", "gib"),
    [(16, 16), ("16", 16), ("16Gi", 16), ("16GB", 16), ("16g", 16), ("512Mi", 0.5), ("1Ti", 1024),
     ("1.5TB", 1536)],
)  # fmt: skip
def test_sizes_are_gib(value: object, gib: float) -> None:
    assert parse_size("memory", value) == (gib, False)


def test_a_plus_means_at_least() -> None:
    assert parse_size("memory", "16+") == (16.0, True)
    assert parse_size("memory", "16Gi+") == (16.0, True)


@pytest.mark.parametrize(
    ("value", "parsed"),
    [("H100:8", ("H100", 8)), ("H100", ("H100", 1)), ({"H100": 8}, ("H100", 8)),
     ({"H100": "6"}, ("H100", 6)), ("RTXPRO-6000-BLACKWELL-SERVER-EDITION:2",
      ("RTXPRO-6000-BLACKWELL-SERVER-EDITION", 2))],
)  # fmt: skip
def test_accelerators(value: object, parsed: tuple[str, int]) -> None:
    assert parse_accelerators(value) == parsed


@pytest.mark.parametrize(
    "value", ["H100:0", "H100:-1", "H100:x", "H100:1.5", "", ":8", {"H100": True}, {"A": 1, "B": 1},
              {}, 8, ["H100"], "H100 8"],
)  # fmt: skip
def test_accelerators_that_mean_nothing(value: object) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_accelerators(value)
    assert caught.value.key == "accelerators"


@pytest.mark.parametrize("value", [0, 33, True, "two", 1.0, "1.5", None])
def test_gang_sizes_that_mean_nothing(value: object) -> None:
    with pytest.raises(ProfileError):
        parse_num_nodes(value)


def test_gang_sizes_may_be_digits() -> None:
    assert (parse_num_nodes("32"), parse_num_nodes(1)) == (32, 1)


def test_a_whole_profile() -> None:
    raw = {
        "cloud": "kubernetes",
        "cpus": "16+",
        "memory": "64Gi",
        "disk_size": 200,
        "accelerators": "H100:8",
        "num_nodes": "2",
        "image": "python:3.11-slim",
        "region": None,
    }
    profile = parse_profile("gpu", raw)
    assert (profile.cpus, profile.cpus_at_least) == (16.0, True)
    assert (profile.memory_gib, profile.disk_gib) == (64.0, 200.0)
    assert (profile.accelerator, profile.accelerator_count, profile.num_nodes) == ("H100", 8, 2)
    assert (profile.cloud, profile.image, profile.name) == ("kubernetes", "python:3.11-slim", "gpu")
    assert profile.raw is raw


def test_an_empty_profile_asks_for_nothing() -> None:
    profile = parse_profile("default", {"cpus": "", "memory": None})
    assert (profile.cpus, profile.memory_gib, profile.accelerator, profile.num_nodes) == (
        0,
        0,
        "",
        1,
    )


def test_all_problems_of_a_profile_are_told() -> None:
    bad = {"cpus": "4 cores", "memory": "16 gigs", "accelerators": "H100:0", "num_nodes": 99,
           "diskSize": -1, "cloud": 3}  # fmt: skip
    assert {problem.key for problem in profile_problems("p", bad)} == {
        "cpus", "memory", "accelerators", "num_nodes", "disk_size", "cloud"
    }  # fmt: skip
    assert profile_problems("p", {"cpus": 4}) == []
