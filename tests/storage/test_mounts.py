"""Which file systems keep names and data in order; what is not known does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from npa.storage.mounts import keeps_order


@pytest.mark.parametrize(
    ("system", "answer"),
    [
        ("ext4 /dev/vda rw,errors=remount-ro", True),
        ("xfs /dev/sdb rw,noquota", True),
        ("tmpfs tmpfs rw", True),
        ("ext4 /dev/vda rw,data=writeback", False),
        ("nfs4 host:/export rw,vers=4.2", False),
        ("overlay overlay rw,lowerdir=/ext4", False),
        ("fuse.s3fs s3fs rw", False),
    ],
)
def test_only_known_local_file_systems_do(tmp_path: Path, system: str, answer: bool) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:21 / /proc rw,nosuid shared:2 - proc proc rw\n"
        f"23 1 {os.major(device)}:{os.minor(device)} / / rw,relatime shared:1 - {system}\n"
    )
    assert keeps_order(str(tmp_path), mounts) is answer


def test_what_cannot_be_told_does_not(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    assert not keeps_order(str(tmp_path), mounts)
    mounts.write_text("22 1 0:21 / /proc rw - proc proc rw\n")
    assert not keeps_order(str(tmp_path), mounts)
    assert not keeps_order(str(tmp_path / "nowhere"))
