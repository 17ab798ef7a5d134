"""The run's store as a task first reaches it: standard library, Python 3.8.

npa_store.py bring FOLDER SHA256 NAME    put a program beside this file, proven by its hash
npa_store.py note CODE                   leave in the store why this job ends early
"""

import datetime
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.request
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode, urlsplit

HERE = os.path.dirname(os.path.abspath(__file__))
PAUSE_SECONDS = float(os.environ.get("NPA_RETRY_PAUSE_SECONDS", "1"))


def send(method: str, uri: str, body: bytes = b"", query: "dict[str, str]" = {}) -> bytes:  # noqa: B006
    """One request to S3, signed if there are credentials. A PUT only creates."""
    var, sha = os.environ.get, hashlib.sha256
    region = var("AWS_REGION") or var("AWS_DEFAULT_REGION") or "us-east-1"
    base = urlsplit(var("AWS_ENDPOINT_URL") or f"https://s3.{region}.amazonaws.com")
    path = quote(base.path.rstrip("/") + "/" + uri[len("s3://") :], safe="/~")
    search = urlencode(sorted(query.items()), quote_via=quote, safe="~")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": base.netloc, "x-amz-content-sha256": sha(body).hexdigest()}
    if method == "PUT":
        headers.update({"if-none-match": "*", "content-type": "application/octet-stream"})
    if var("AWS_ACCESS_KEY_ID"):  # AWS Signature Version 4
        headers["x-amz-date"] = now
        if var("AWS_SESSION_TOKEN"):
            headers["x-amz-security-token"] = var("AWS_SESSION_TOKEN", "")
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        text = "\n".join([method, path, search, lines, names, headers["x-amz-content-sha256"]])
        scope = f"{now[:8]}/{region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, sha(text.encode()).hexdigest()])
        key = ("AWS4" + var("AWS_SECRET_ACCESS_KEY", "")).encode()
        for part in [*scope.split("/"), text]:
            key = hmac.new(key, part.encode(), sha).digest()
        who = f"Credential={var('AWS_ACCESS_KEY_ID')}/{scope}"
        proof = f"AWS4-HMAC-SHA256 {who}, SignedHeaders={names}, Signature={key.hex()}"
        headers["authorization"] = proof
    url = f"{base.scheme}://{base.netloc}{path}" + (f"?{search}" if search else "")
    call = urllib.request.Request(url, data=body or None, headers=headers, method=method)
    with urllib.request.urlopen(call, timeout=60) as answer:
        return bytes(answer.read())


def read(uri: str) -> bytes:
    """The object, with pauses of 1 + 2 + 4 + 8 + 16 s for a store that is away."""
    for turn in range(6):
        try:
            if uri.startswith("s3://"):
                return send("GET", uri)
            with open(unquote(uri[len("file://") :]), "rb") as handle:
                return handle.read()
        except OSError as error:
            refused = isinstance(error, HTTPError) and error.code < 500
            if turn == 5 or (refused and error.code not in (408, 409, 425, 429)):  # type: ignore[attr-defined]
                raise
        time.sleep(PAUSE_SECONDS * 2**turn)
    raise AssertionError


def bring(folder: str, sha256: str, name: str) -> int:
    place = os.path.join(HERE, name)
    aside = f"{place}.{os.urandom(6).hex()}"  # the nodes of a gang may share this home
    try:
        if os.path.exists(place) and digest(read(f"file://{quote(place)}")) == sha256:
            return 0  # a restart finds what it brought
        data = read(folder + sha256)
        if digest(data) != sha256:
            raise ValueError(f"it has SHA-256 {digest(data)}")
        with open(aside, "xb") as handle:
            handle.write(data)
        os.replace(aside, place)
    except (OSError, ValueError) as error:
        say(f"cannot bring {name} from {folder}{sha256}: {type(error).__name__}: {error}")
        note(96)
        return 96
    return 0


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def note(code: int) -> None:
    """Leave the reserved code beside the attempt's claim: SkyPilot keeps no exit code."""
    claim, job = os.environ.get("NPA_CLAIM_URI", ""), job_id()
    if not claim or not job:
        return
    uri, body = f"{os.path.dirname(claim)}/ended-{job}", json.dumps({"code": code}).encode()
    try:
        if uri.startswith("s3://"):
            send("PUT", uri, body)
        else:
            path = unquote(uri[len("file://") :])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as handle:
                handle.write(body)
    except OSError as error:  # a neighbour's note, or a store that is away
        say(f"no note was left: {type(error).__name__}")


def job_id() -> str:
    return os.environ.get("SKYPILOT_MANAGED_JOB_ID") or os.environ.get("SKYPILOT_TASK_ID", "")


def say(text: str) -> None:
    print(f"npa: {text}", file=sys.stderr, flush=True)


def main(words: "list[str]") -> int:
    if words[0] == "bring":
        return bring(*words[1:])
    note(int(words[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
