"""Logs arrive whole, as bytes, while a task runs and after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from npa.observation import Absent, Found
from npa.orchestration.engine import Job, JobRef
from npa.orchestration.local import logs
from npa.orchestration.local.engine import LocalEngine
from npa.orchestration.local.logs import Excerpt, tail
from npa.orchestration.logs import LogStream
from orchestration.local.kit import job, ref, settled, until


def stream_of(engine: LocalEngine, one: Job, rank: int = 0) -> LogStream:
    found = engine.logs.streams(ref(one))
    assert isinstance(found, Found)
    return found.value[rank]


def read_all(engine: LocalEngine, one: Job, rank: int = 0) -> bytes:
    data, offset, ended = b"", 0, False
    stream = stream_of(engine, one, rank)
    while not ended:
        chunk = engine.logs.read(ref(one), stream, offset)
        assert isinstance(chunk, Found)
        data += chunk.value.data
        offset, ended = chunk.value.next_offset, chunk.value.ended
    return data


@pytest.mark.parametrize(
    "payload",
    [
        b"x" * 300_000 + b"\n" + b"y" * 300_000,
        b"".join(b"\r%3d %%" % percent for percent in range(101)),
        bytes(range(256)) * 40,
        b"",
        b"z" * (logs.CHUNK_BYTES * 2),
    ],
    ids=["lines of 300 KB", "progress bar", "binary", "nothing", "chunks"],
)
def test_bytes_arrive_as_they_were_written(
    engine: LocalEngine, tmp_path: Path, payload: bytes
) -> None:
    (tmp_path / "payload").write_bytes(payload)
    one = job("one", argv=("cat", str(tmp_path / "payload")))
    engine.launch(one)
    settled(engine, one)
    assert read_all(engine, one) == payload


def test_a_running_task_can_be_followed(engine: LocalEngine, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    one = job("one", f"printf first; read x < {tmp_path}/go; printf second")
    engine.launch(one)
    stream = stream_of(engine, one)
    until((tmp_path / "jobs/one/rank-0.log").exists)
    until(lambda: (tmp_path / "jobs/one/rank-0.log").read_bytes() == b"first")
    chunk = engine.logs.read(ref(one), stream, 0)
    assert isinstance(chunk, Found)
    assert (chunk.value.data, chunk.value.next_offset, chunk.value.ended) == (b"first", 5, False)
    (tmp_path / "go").write_text("x\n")
    settled(engine, one)
    rest = engine.logs.read(ref(one), stream, 5)
    assert isinstance(rest, Found)
    assert (rest.value.data, rest.value.ended) == (b"second", True)


def test_each_rank_has_a_stream(engine: LocalEngine) -> None:
    gang = job("gang", "echo $SKYPILOT_NODE_RANK", setup="echo setup", ranks=3)
    engine.launch(gang)
    settled(engine, gang)
    assert [read_all(engine, gang, rank) for rank in range(3)] == [
        b"setup\n%d\n" % rank for rank in range(3)
    ]


def test_a_job_that_never_was_has_no_streams(engine: LocalEngine) -> None:
    assert isinstance(engine.logs.streams(JobRef("nobody", "key")), Absent)


def test_a_task_that_never_wrote_is_read_as_empty(engine: LocalEngine, tmp_path: Path) -> None:
    one = job("one", argv=("no-such-program",))
    engine.launch(one)
    settled(engine, one)
    (tmp_path / "jobs/one/rank-0.log").unlink()
    assert read_all(engine, one) == b""


@pytest.mark.parametrize(
    ("data", "count", "expected", "last"),
    [
        (b"", 3, Excerpt((), 0), 0),
        (b"a\nb\nc\n", 2, Excerpt((b"b", b"c"), 2), 3),
        (b"a\nb", 5, Excerpt((b"a", b"b"), 1), 2),
        (b"a\nwhy\n\n \n", 3, Excerpt((b"why", b"", b" "), 2), 2),
        (b"10%\r50%\r100%\r\nend\r\n", 5, Excerpt((b"100%", b"end"), 1), 2),
        (b"\0\xff\n\x80", 1, Excerpt((b"\x80",), 2), 2),
    ],
)
def test_the_tail_is_numbered(
    tmp_path: Path, data: bytes, count: int, expected: Excerpt, last: int
) -> None:
    file = tmp_path / "log"
    file.write_bytes(data)
    found = tail(str(file), count)
    assert found == expected
    assert found.last_number == last


def test_the_tail_of_a_huge_log_is_read_alone(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with open(file, "wb") as sparse:
        sparse.truncate(1 << 33)
        sparse.seek(0, os.SEEK_END)
        sparse.write(b"\nthe end\n")
    assert tail(str(file), 1) == Excerpt((b"the end",), 0)
    assert logs.last_line(str(file)) is None


def test_lines_before_the_tail_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"line\n" * 100_000 + b"last\n")
    assert tail(str(file), 1) == Excerpt((b"last",), 100_001)
    assert logs.last_line(str(file)) == 100_001
