"""The payload fence, the licence gate and the model server, run as a node would run them."""

from __future__ import annotations

import json
import subprocess

import pytest

from node_harness import CATALOG, PYTHON, SCRIPTS, Node, launch
from npa.observation import Found
from npa.orchestration.engine import Job, Task
from npa.orchestration.skypilot.options import RenderOptions, StagedSource
from npa.orchestration.skypilot.render import render_job
from npa.workflow.step import Command, Step
from s3server import S3

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
    # No claim is taken: all that is left says why, for SkyPilot keeps no exit code.
    (left,) = [path for path in (node.root / "claims").rglob("*") if path.is_file()]
    assert left.name.startswith("ended-")
    assert json.loads(left.read_text()) == {"code": 95}


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
    import io
    import runpy
    import urllib.request

    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    sent: list[urllib.request.Request] = []

    def answer(call: urllib.request.Request, timeout: float) -> io.BytesIO:
        sent.append(call)
        return io.BytesIO(b"there")

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.example.org")
    monkeypatch.setenv("AWS_REGION", "eu-north1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret/+")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token==")
    send = runpy.run_path(str(SCRIPTS.joinpath("npa_store.py")))["send"]
    query = {"list-type": "2", "prefix": "x y/", "continuation-token": "a/="}
    assert send("PUT", "s3://bucket/a b/ü~x+y", b"body", query) == b"there"
    (call,) = sent
    headers = {name.lower(): value for name, value in call.header_items()}
    authorization = headers.pop("authorization")
    assert call.full_url == (
        "https://s3.example.org/bucket/a%20b/%C3%BC~x%2By"
        "?continuation-token=a%2F%3D&list-type=2&prefix=x%20y%2F"
    )
    assert (headers["if-none-match"], call.data) == ("*", b"body")
    request = AWSRequest("PUT", call.full_url, headers, b"body")
    request.context["timestamp"] = headers["x-amz-date"]
    signer = S3SigV4Auth(Credentials("AKIDEXAMPLE", "secret/+", "token=="), "s3", "eu-north1")
    scope = signer.credential_scope(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    signature = signer.signature(text, request)
    assert f"Credential=AKIDEXAMPLE/{scope}" in authorization
    assert authorization.endswith(f"Signature={signature}")


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
