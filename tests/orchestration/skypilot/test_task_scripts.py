"""The programs of a task, run as a node would run them: source, package, interpreter."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from node_harness import CATALOG, PYTHON, SCRIPTS, SHELL_SCRIPTS, Node, launch, stage
from npa.observation import Found
from npa.orchestration.engine import Job, Task
from npa.orchestration.skypilot import staging
from npa.orchestration.skypilot.options import RenderOptions, StagedSource
from npa.orchestration.skypilot.render import render_job
from npa.orchestration.skypilot.render_scripts import PROGRAMS, begin, program_digest, script
from npa.orchestration.skypilot.task_codes import TaskCode
from npa.orchestration.source_package import own_package
from npa.workflow.step import Command, Step
from s3server import S3

# -- the files themselves --------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHELL_SCRIPTS)
def test_a_script_is_clean_portable_shell(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(SCRIPTS.joinpath(name).read_text())
    linter = Path(PYTHON).parent / "shellcheck"
    if not linter.exists():
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        [linter, "-s", "sh", path], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("name", SHELL_SCRIPTS)
def test_a_script_can_be_read_by_the_shell(name: str, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    text = SCRIPTS.joinpath(name).read_text()
    done = subprocess.run(
        [shell, "-n"], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["npa_store.py", "task.py"])
def test_a_helper_is_python_3_8_without_packages(name: str) -> None:
    tree = ast.parse(SCRIPTS.joinpath(name).read_text(), feature_version=(3, 8))
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    roots = {name.partition(".")[0] for name in imported} - {"npa", "npa_store", "__future__"}
    assert roots <= sys.stdlib_module_names


def test_the_scripts_end_with_the_reserved_codes_and_no_others() -> None:
    shell = "".join(SCRIPTS.joinpath(name).read_text() for name in SHELL_SCRIPTS)
    codes = {int(code) for code in re.findall(r"(?:npa_fail|exit) (\d{2})\b", shell)}
    (line,) = re.findall(r"^EXIT_.* = (.*)$", SCRIPTS.joinpath("task.py").read_text(), re.M)
    codes |= {int(code) for code in line.split(", ")}
    assert codes == {int(code) for code in TaskCode}


def test_no_line_of_a_helper_ends_its_quotation() -> None:
    assert "NPA_TASK_PY" not in SCRIPTS.joinpath("task.py").read_text()
    assert "NPA_STORE_PY" not in SCRIPTS.joinpath("npa_store.py").read_text()
    assert SCRIPTS.joinpath("begin.sh").read_text().count("@STORE_PY@") == 1


# -- a plain command -------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_command_runs_and_its_exit_code_is_the_task_s(node: Node, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    done = launch(node, argv=("sh", "-c", 'echo "<$1>"; exit 3', "x", "a b"), shell=found)
    assert (done.returncode, done.stdout, done.stderr) == (3, "<a b>\n", "")


def test_shell_text_runs_in_bash_as_it_was_written(node: Node) -> None:
    done = launch(node, script="set -o pipefail\nfalse | true || echo 'it''s ${BASH##*/}'")
    assert (done.returncode, done.stdout) == (0, "its ${BASH##*/}\n")


# -- staged source ---------------------------------------------------------------------------------


@pytest.mark.req("B-10")
def test_a_command_runs_in_the_folder_of_its_staged_source(
    node: Node, s3: S3, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    (folder / "stages").mkdir(parents=True)
    (folder / "stages/train.py").write_text("import helper; print(helper.WHO)")
    (folder / "helper.py").write_text("WHO = 'staged'")
    (folder / "go.sh").write_text("#!/bin/sh\npython3 stages/train.py\n")
    (folder / "go.sh").chmod(0o755)
    options = RenderOptions(source=stage(s3, folder))
    done = launch(node, argv=("./go.sh",), options=options, env=s3.environment)
    assert (done.returncode, done.stdout) == (0, "staged\n"), done.stderr


def test_source_with_another_hash_is_not_unpacked(node: Node, s3: S3, tmp_path: Path) -> None:
    folder = tmp_path / "pipeline"
    folder.mkdir()
    (folder / "x.py").write_text("")
    staged = stage(s3, folder)
    wrong = StagedSource(staged.uri, "0" * 64, staged.fingerprint)
    done = launch(node, argv=("true",), options=RenderOptions(source=wrong), env=s3.environment)
    assert done.returncode == 96
    assert staged.sha256 in done.stderr
    assert not list((node.home / ".npa-task").glob("source-*"))


@pytest.mark.parametrize("kind", ["name", "absolute", "link", "through a link", "device"])
def test_an_archive_that_leaves_its_folder_is_refused(node: Node, kind: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        match kind:
            case "name":
                tar.addfile(tarfile.TarInfo("../evil"))
            case "absolute":
                tar.addfile(tarfile.TarInfo(str(node.root / "evil")))
            case "device":
                device = tarfile.TarInfo("device")
                device.type = tarfile.CHRTYPE
                tar.addfile(device)
            case _:
                link = tarfile.TarInfo("link")
                link.type = tarfile.SYMTYPE
                link.linkname = ".." if kind == "through a link" else "/etc"
                tar.addfile(link)
                tar.addfile(tarfile.TarInfo("link/evil"))
    place = node.root / "a.tar.gz"
    place.write_bytes(packed.getvalue())
    source = StagedSource(place.as_uri(), hashlib.sha256(packed.getvalue()).hexdigest(), "f")
    done = launch(node, argv=("true",), options=RenderOptions(source=source))
    assert done.returncode == 96
    assert "evil" not in [path.name for path in node.root.rglob("*")]
    assert not list((node.home / ".npa-task").glob("source-*"))


@pytest.mark.req("B-10")
@pytest.mark.parametrize("where", ["s3", "file"])
def test_a_prefix_set_by_hand_is_brought_object_by_object(node: Node, s3: S3, where: str) -> None:
    root = (node.root / "objects").as_uri() + "/" if where == "file" else f"{s3.uri}src/"
    for name in ("npa/cli/__init__.py", "npa/cli/main.py", "npa/__init__.py"):
        text = b"def main():\n    print('by hand')\n" if name.endswith("main.py") else b""
        if where == "s3":
            s3.store("src/").put(name, text)
        else:
            path = node.root / "objects" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    options = RenderOptions(package=StagedSource(root))
    done = launch(node, argv=("npa", "status"), options=options, env=s3.environment)
    assert (done.returncode, done.stdout) == (0, "by hand\n"), done.stderr


def test_a_listing_of_several_pages_is_read_to_its_end(s3: S3) -> None:
    for n in range(7):
        s3.store("many/").put(f"{n}.txt", b"x")
    code = (
        "import runpy,sys\n"
        f"task = runpy.run_path({str(SCRIPTS.joinpath('task.py'))!r})\n"
        "real = task['request']\n"
        "def small(method, uri, body=b'', query={}):\n"
        "    return real(method, uri, body, {**query, 'max-keys': '3'})\n"
        "task['names_below'].__globals__['request'] = small\n"
        f"print(len(list(task['names_below']('{s3.uri}many/'))))\n"
    )
    env = {"PATH": os.environ["PATH"], **s3.environment}
    done = subprocess.run(
        [PYTHON, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "7\n", done.stderr


def test_nodes_that_share_a_home_prepare_it_side_by_side(
    node: Node, s3: S3, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    folder.mkdir()
    (folder / "x.py").write_text("print('here')")
    options = RenderOptions(source=stage(s3, folder), claims_uri=f"{s3.uri}attempts/")
    step = Step("t", "t", Command(argv=("python3", "x.py")))
    _, document = render_job(Job("run-x-abc", "k", (Task(step),)), CATALOG, options).documents
    env = {**document["envs"], **s3.environment}
    with ThreadPoolExecutor() as pool:
        ranks = [pool.submit(node.run, document["setup"], env) for _ in range(4)]
        done = [rank.result() for rank in ranks]
    assert [one.returncode for one in done] == [0] * 4, [one.stderr for one in done]
    ran = node.run(document["run"], env)
    assert ran.stdout == "here\n", ran.stderr
    left = [path.name for path in (node.home / ".npa-task").iterdir()]
    assert len([name for name in left if name.startswith("source-")]) == 1
    assert [name for name in left if name.startswith("task.py")] == ["task.py"]


# -- the package and the interpreter ---------------------------------------------------------------


def tree(folder: Path, who: str) -> Path:
    (folder / "src/npa/cli").mkdir(parents=True)
    (folder / "src/npa/__init__.py").write_text("")
    (folder / "src/npa/cli/__init__.py").write_text("")
    (folder / "src/npa/cli/main.py").write_text(
        f"import sys\ndef main():\n    print('{who}', *sys.argv[1:])\n"
    )
    return folder


@pytest.mark.req("B-09")
def test_a_staged_package_comes_before_the_old_tree_of_an_image(
    node: Node, s3: S3, tmp_path: Path
) -> None:
    old = tree(tmp_path / "old", "old")
    options = RenderOptions(package=stage(s3, tree(tmp_path / "new", "new")))
    env = {**s3.environment, "PYTHONPATH": str(old / "src")}
    done = launch(node, argv=("npa", "run", "a b"), options=options, env=env)
    assert (done.returncode, done.stdout) == (0, "new run a b\n"), done.stderr
    module = launch(
        node,
        argv=("python3", "-c", "import npa.cli; print(npa.cli.__file__)"),
        options=options,
        env=env,
    )
    assert "/package-" in module.stdout


@pytest.mark.req("B-10")
def test_our_own_package_is_imported_from_its_archive(node: Node, s3: S3) -> None:
    packed = own_package()
    s3.store().put("npa.tar.gz", packed.data)
    staged = StagedSource(f"{s3.uri}npa.tar.gz", packed.sha256, str(packed.manifest["fingerprint"]))
    words = ("python3", "-c", "import npa.tools.decide as one; print(one.__file__)")
    done = launch(node, argv=words, options=RenderOptions(package=staged), env=s3.environment)
    assert f"/package-{packed.sha256}/npa/tools/decide.py" in done.stdout, done.stderr
    version = launch(
        node, argv=("npa", "--version"), options=RenderOptions(package=staged), env=s3.environment
    )
    assert version.returncode == 0, version.stderr


@pytest.mark.req("B-09")
def test_a_package_that_the_interpreter_lacks_is_installed_from_its_list(node: Node) -> None:
    tree = node.root / "tree"
    tree.mkdir()
    (tree / "requirements.txt").write_text("obstore\n")
    log, ready = node.root / "log", node.root / "ready"
    vendor = node.tool(
        "vendor-python",
        f'echo "$*" >>"{log}"\n'
        f'case "$*" in *"import npa.cli"*) [ -e "{ready}" ] ;; *install*) touch "{ready}" ;; esac',
    )
    setup = begin("")
    settings = {
        "NPA_INTERPRETERS": str(vendor),
        "NPA_NEEDS_PACKAGE": "1",
        "NPA_SRC_S3_URI": f"{tree.as_uri()}/",
    }
    done = node.run(setup, settings)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in log.read_text().splitlines() if "install" in line]
    assert line.startswith("-m pip install --quiet -r ")
    assert line.endswith("/package-unproven/requirements.txt")


@pytest.mark.req("B-09")
def test_the_recorded_interpreter_runs_the_command(node: Node) -> None:
    vendor = node.tool("vendor-python", 'echo "vendor: $*"')
    _, document = render_job(
        Job("run-x-abc", "k", (Task(Step("t", "t", Command(argv=("python3", "go.py")))),)),
        CATALOG,
        RenderOptions(),
    ).documents
    setup = f"NPA_INTERPRETERS='/absent/python {vendor}'\n{document['setup']}"
    assert node.run(setup, {}).returncode == 0
    done = node.run(document["run"], {})
    assert (done.returncode, done.stdout) == (0, "vendor: go.py\n")


@pytest.mark.req("B-05")
def test_only_requirements_that_the_probe_misses_are_installed(node: Node) -> None:
    log = node.root / "log"
    vendor = node.tool(
        "vendor-python",
        f'echo "$*" >>"{log}"\ncase "$*" in *"import missing"*) exit 1 ;; *broken*) exit 1 ;; esac',
    )
    wanted = "python:there\tthere>=1\npython:missing;assert(1)\tmissing[cli]>=1,<2\nsh\tnever"
    setup = begin("")
    settings = {"NPA_INTERPRETERS": str(vendor), "NPA_REQUIREMENTS": wanted}
    done = node.run(setup, settings)
    assert done.returncode == 0, done.stderr
    installs = [line for line in log.read_text().splitlines() if "install" in line]
    assert installs == ["-m pip install --quiet missing[cli]>=1,<2"]
    log.unlink()
    settings["NPA_REQUIREMENTS"] = "python:missing\tbroken"
    failed = node.run(setup, settings)
    assert failed.returncode != 0
    installs = [line for line in log.read_text().splitlines() if "install" in line]
    assert installs == [
        "-m pip install --quiet broken",
        "-m pip install --quiet --break-system-packages broken",
        "-m pip install --quiet --user broken",
    ]


def test_a_command_of_the_package_fails_early_when_nothing_brings_it(node: Node) -> None:
    node.tool(
        "python3", 'case "$*" in *"import npa.cli"*) exit 1 ;; esac\n' + f'exec "{PYTHON}" "$@"'
    )
    if Path("/opt/nebius-physical-ai/npa").exists():
        pytest.skip("this machine has a baked package")
    done = launch(node, argv=("npa", "status"))
    assert done.returncode == 94
    assert "stage the package" in done.stderr


# -- the programs of all tasks ---------------------------------------------------------------------


def staged_programs(s3: S3) -> RenderOptions:
    """What a submit puts into the run's store, and the options that say where."""
    staging.stage(s3.store(), s3.uri, None)
    return RenderOptions(
        programs_uri=s3.uri + staging.PROGRAMS_FOLDER, claims_uri=f"{s3.uri}attempts/"
    )


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_the_programs_of_all_tasks_come_from_the_run_s_store(
    node: Node, s3: S3, shell: str
) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    done = launch(
        node, argv=("echo", "ran"), options=staged_programs(s3), env=s3.environment, shell=found
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    for name in PROGRAMS:
        assert (node.home / ".npa-task" / name).read_text() == script(name)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("trouble", ["absent", "another", "no store"])
@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_program_that_cannot_be_brought_ends_the_task_before_anything_runs(
    node: Node, s3: S3, name: str, trouble: str, shell: str
) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    options, env = staged_programs(s3), dict(s3.environment)
    key = staging.PROGRAMS_FOLDER + program_digest(name)
    match trouble:
        case "absent":
            s3.store().delete(key)
        case "another":
            s3.store().put(key, b"echo somebody else's")
        case _:
            env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
    done = launch(node, argv=("echo", "payload"), options=options, env=env, shell=found)
    assert (done.returncode, done.stdout) == (96, "")
    assert f"cannot bring {name if trouble != 'no store' else PROGRAMS[0]} from {s3.uri}" in (
        done.stderr
    )
    assert not isinstance(s3.store().get(f"attempts/{'k' * 64}/claim"), Found)
    if trouble != "no store":
        left = s3.store().get(f"attempts/{'k' * 64}/ended-7")
        assert isinstance(left, Found)
        assert json.loads(left.value.data) == {"code": 96}
    names = [path.name for path in (node.home / ".npa-task").iterdir()]
    assert [one for one in names if one.startswith(f"{name}.")] == []


def test_a_restart_on_the_same_node_needs_no_second_download(node: Node, s3: S3) -> None:
    options = staged_programs(s3)
    assert launch(node, argv=("true",), options=options, env=s3.environment).returncode == 0
    for name in PROGRAMS:
        s3.store().delete(staging.PROGRAMS_FOLDER + program_digest(name))
    done = launch(node, argv=("echo", "again"), options=options, env=s3.environment)
    assert (done.returncode, done.stdout) == (0, "again\n"), done.stderr


def test_a_helper_finds_its_neighbour_where_an_image_leaves_its_folder_out(node: Node) -> None:
    done = launch(node, argv=("echo", "ran"), env={"PYTHONSAFEPATH": "1"})
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


@pytest.mark.parametrize("staged", [True, False])
def test_a_task_runs_alike_with_its_programs_staged_or_in_its_document(
    node: Node, staged: bool
) -> None:
    done = launch(node, argv=("sh", "-c", "echo ran; exit 5"), staged=staged)
    assert (done.returncode, done.stdout, done.stderr) == (5, "ran\n", "")


def test_a_document_states_hashes_in_place_of_what_all_tasks_share(node: Node) -> None:
    job = Job("run-x-abc", "k", (Task(Step("t", "t", Command(argv=("true",)))),))
    short = render_job(job, CATALOG, RenderOptions(programs_uri="s3://b/r/programs/")).text
    whole = render_job(job, CATALOG, RenderOptions()).text
    for name in PROGRAMS:
        assert f"bring s3://b/r/programs/ {program_digest(name)} {name} ||" in short
    assert len(short) < len(whole) / 2
