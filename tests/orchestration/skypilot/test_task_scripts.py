"""The programs of a task, run as a node would run them: in a home of their own, with fake tools."""

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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import pytest

from npa.catalog.loader import Catalog
from npa.observation import Found
from npa.orchestration.engine import Job, Task
from npa.orchestration.skypilot.options import RenderOptions, StagedSource
from npa.orchestration.skypilot.render import render_job
from npa.orchestration.skypilot.task_codes import TaskCode
from npa.orchestration.source import archive, scan
from npa.workflow.profile import parse_profile
from npa.workflow.step import Command, Step
from s3server import S3

SCRIPTS = resources.files("npa.orchestration.skypilot").joinpath("scripts")
SHELL_SCRIPTS = ("setup.sh", "run.sh", "model_server.sh")
CATALOG = Catalog.built_in()
BASH = shutil.which("bash") or "bash"
PYTHON = sys.executable


@dataclass
class Node:
    """One node: a home, a PATH of fake tools before the system's, and an environment."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.root / "home"

    def tool(self, name: str, text: str) -> Path:
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def run(
        self, program: str, env: Mapping[str, str], *, shell: str = BASH
    ) -> subprocess.CompletedProcess[str]:
        self.home.mkdir(exist_ok=True)
        script = self.root / f"program-{hashlib.sha256(program.encode()).hexdigest()[:8]}.sh"
        script.write_text(program)
        variables = {
            "HOME": str(self.home),
            "PATH": f"{self.root / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "NPA_RETRY_PAUSE_SECONDS": "0",
            "SKYPILOT_MANAGED_JOB_ID": "7",
            **self.env,
            **env,
        }
        return subprocess.run(
            [shell, str(script)],
            cwd=self.home,
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.tool("python3", f'exec "{PYTHON}" "$@"')
    return made


def launch(
    node: Node,
    *,
    argv: tuple[str, ...] = (),
    script: str = "",
    tool: str = "",
    options: RenderOptions | None = None,
    config: Mapping[str, object] | None = None,
    key: str = "k" * 64,
    shell: str = BASH,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Render one step and run its two programs; the first that fails ends it."""
    step = Step(
        path="train",
        state="train",
        command=Command(argv=argv, shell=script, tool_ref=tool),
        profile=parse_profile("p", {}),
        config=config or {},
    )
    given = options or RenderOptions()
    rendered = render_job(Job("run-train-abc", key, (Task(step),)), CATALOG, given)
    _, document = rendered.documents
    variables = {**document["envs"], **(env or {})}
    done = node.run(document["setup"], variables, shell=shell)
    if done.returncode == 0:
        done = node.run(document["run"], variables, shell=shell)
    return done


def stage(s3: S3, folder: Path, name: str = "source.tar.gz") -> StagedSource:
    packed = archive(scan(folder))
    s3.store().put(name, packed.data)
    return StagedSource(s3.uri + name, packed.sha256, str(packed.manifest["fingerprint"]))


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


def test_the_helper_is_python_3_8_without_packages() -> None:
    tree = ast.parse(SCRIPTS.joinpath("task.py").read_text(), feature_version=(3, 8))
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    roots = {name.partition(".")[0] for name in imported} - {"npa", "__future__"}
    assert roots <= sys.stdlib_module_names


def test_the_scripts_end_with_the_reserved_codes_and_no_others() -> None:
    shell = "".join(SCRIPTS.joinpath(name).read_text() for name in SHELL_SCRIPTS)
    codes = {int(code) for code in re.findall(r"(?:npa_fail|exit) (\d{2})\b", shell)}
    (line,) = re.findall(r"^EXIT_.* = (.*)$", SCRIPTS.joinpath("task.py").read_text(), re.M)
    codes |= {int(code) for code in line.split(", ")}
    assert codes == {int(code) for code in TaskCode}


def test_no_line_of_the_helper_ends_its_quotation() -> None:
    assert "NPA_TASK_PY" not in SCRIPTS.joinpath("task.py").read_text()
    assert SCRIPTS.joinpath("setup.sh").read_text().count("@TASK_PY@") == 1


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
    setup = SCRIPTS.joinpath("setup.sh").read_text().replace("@TASK_PY@", "pass")
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


# -- licence ---------------------------------------------------------------------------------------


@pytest.mark.req("B-07")
def test_a_declined_licence_stops_before_any_download(node: Node) -> None:
    claims = (node.root / "claims").as_uri() + "/"
    options = RenderOptions(
        accept_eula=False,
        claims_uri=claims,
        source=StagedSource("http://127.0.0.1:9/never", "0" * 64, "f"),
    )
    done = launch(node, argv=("true",), tool="workbench.rl.policy_train", options=options)
    assert done.returncode == 95
    assert "licence was not accepted" in done.stderr
    assert not (node.root / "claims").exists()


# -- the payload fence -----------------------------------------------------------------------------


def fenced(where: str) -> RenderOptions:
    return RenderOptions(claims_uri=f"{where}attempts/", provider="server-1")


def test_the_second_job_of_an_attempt_never_starts_its_payload(node: Node, s3: S3) -> None:
    payload = ("sh", "-c", "echo payload")
    first = launch(node, argv=payload, options=fenced(s3.uri), env=s3.environment)
    assert (first.returncode, first.stdout) == (0, "payload\n"), first.stderr
    other = Node(node.root / "other")
    other.root.mkdir()
    other.tool("python3", f'exec "{PYTHON}" "$@"')
    env = {**s3.environment, "SKYPILOT_MANAGED_JOB_ID": "8"}
    second = launch(other, argv=payload, options=fenced(s3.uri), env=env)
    assert (second.returncode, second.stdout) == (97, "")
    assert "belongs to another job" in second.stderr
    claim = s3.store().get(f"attempts/{'k' * 64}/claim")
    assert isinstance(claim, Found)
    assert json.loads(claim.value.data) == {"job": "7", "provider": "server-1"}


def test_a_restart_and_the_other_ranks_of_the_same_job_pass(node: Node, s3: S3) -> None:
    for _ in range(2):
        done = launch(node, argv=("true",), options=fenced(s3.uri), env=s3.environment)
        assert done.returncode == 0, done.stderr


def test_the_next_attempt_has_a_claim_of_its_own(node: Node, s3: S3) -> None:
    assert launch(node, argv=("true",), options=fenced(s3.uri), env=s3.environment).returncode == 0
    env = {**s3.environment, "SKYPILOT_MANAGED_JOB_ID": "8"}
    done = launch(node, argv=("true",), options=fenced(s3.uri), env=env, key="l" * 64)
    assert done.returncode == 0, done.stderr


def test_the_same_job_number_of_another_queue_is_another_job(node: Node, s3: S3) -> None:
    assert launch(node, argv=("true",), options=fenced(s3.uri), env=s3.environment).returncode == 0
    options = RenderOptions(claims_uri=f"{s3.uri}attempts/", provider="server-2")
    done = launch(node, argv=("true",), options=options, env=s3.environment)
    assert done.returncode == 97


def test_a_claim_that_comes_between_setup_and_run_stops_the_payload(node: Node, s3: S3) -> None:
    claim = node.root / "claims/attempts" / ("k" * 64) / "claim"
    options = fenced((node.root / "claims").as_uri() + "/")
    assert launch(node, argv=("true",), options=options).returncode == 0
    claim.write_text('{"job": "9", "provider": "server-1"}')
    _, document = render_job(
        Job("run-x-abc", "k" * 64, (Task(Step("t", "t", Command(argv=("echo", "payload")))),)),
        CATALOG,
        options,
    ).documents
    done = node.run(document["run"], document["envs"])
    assert (done.returncode, done.stdout) == (97, "")


@pytest.mark.parametrize("trouble", ["no job", "no store", "no bucket", "bad claim"])
def test_an_attempt_that_cannot_be_claimed_does_not_run(node: Node, s3: S3, trouble: str) -> None:
    env = dict(s3.environment)
    where = s3.uri
    match trouble:
        case "no job":
            env["SKYPILOT_MANAGED_JOB_ID"] = ""
        case "no store":
            env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
        case "no bucket":
            where = "s3://absent-bucket/"
        case _:
            s3.store().put(f"attempts/{'k' * 64}/claim", b"not json")
    done = launch(node, argv=("echo", "payload"), options=fenced(where), env=env)
    assert (done.returncode, done.stdout) == (98, "")
    assert "cannot claim the attempt" in done.stderr


def test_no_secret_is_printed(node: Node, s3: S3) -> None:
    env = {
        **s3.environment,
        "AWS_SECRET_ACCESS_KEY": "canary-secret",
        "AWS_SESSION_TOKEN": "canary-token",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }
    done = launch(node, argv=("true",), options=fenced(s3.uri), env=env)
    assert done.returncode == 98
    assert "canary" not in done.stdout + done.stderr
    written = [p.read_bytes() for p in node.root.rglob("*") if p.is_file()]
    assert not any(b"canary" in data for data in written)


def test_requests_are_signed_as_s3_demands(monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy

    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    task = runpy.run_path(str(SCRIPTS.joinpath("task.py")))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret/+")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token==")
    path = "/bucket/a%20b/%C3%BC~x%2By"
    search = "continuation-token=a%2F%3D&list-type=2&prefix=x%20y%2F"
    headers = {
        "host": "s3.example.org",
        "x-amz-content-sha256": hashlib.sha256(b"body").hexdigest(),
        "if-none-match": "*",
    }
    task["sign"]("PUT", path, search, headers, "eu-north1")
    request = AWSRequest("PUT", f"https://s3.example.org{path}?{search}", dict(headers), b"body")
    del request.headers["authorization"]
    request.context["timestamp"] = headers["x-amz-date"]
    signer = S3SigV4Auth(Credentials("AKIDEXAMPLE", "secret/+", "token=="), "s3", "eu-north1")
    scope = signer.credential_scope(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signature = signer.signature(text, request)
    assert f"Credential=AKIDEXAMPLE/{scope}" in headers["authorization"]
    assert headers["authorization"].endswith(f"Signature={signature}")


# -- a self-hosted model ---------------------------------------------------------------------------

SERVER = """\
import http.server, json, sys
words = sys.argv
port = int(words[words.index("--port") + 1]); model = words[words.index("--model") + 1]
if model == "broken":
    sys.exit("cannot load broken")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": model}]}).encode())
    def log_message(self, *words): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def serve(node: Node, model: str, port: int) -> subprocess.CompletedProcess[str]:
    package = node.root / "lib/vllm/entrypoints/openai"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").write_text("")
    (package / "api_server.py").write_text(SERVER)
    look = (
        "import json, os, urllib.request as r; u = os.environ['NPA_VLM_ENDPOINT'] + '/models';"
        "print(json.load(r.urlopen(u))['data'][0]['id'])"
    )
    config = {"vlm_backend": "self-hosted", "vlm_model": model, "vlm_serve_port": str(port)}
    return launch(
        node,
        argv=("python3", "-c", look),
        tool="workbench.vlm_eval.run",
        config=config,
        env={"PYTHONPATH": str(node.root / "lib"), "NPA_RETRY_PAUSE_SECONDS": "0.05"},
    )


@pytest.fixture
def port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.req("B-06")
def test_a_model_is_served_while_the_command_runs_and_stopped_after(node: Node, port: int) -> None:
    import socket

    done = serve(node, "Q/V", port)
    assert (done.returncode, done.stdout) == (0, "Q/V\n"), done.stderr
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.req("B-06")
def test_a_model_server_that_ends_fails_the_task_with_its_log(node: Node, port: int) -> None:
    done = serve(node, "broken", port)
    assert (done.returncode, done.stdout) == (94, "")
    assert "cannot load broken" in done.stderr
    assert "the model server ended" in done.stderr
