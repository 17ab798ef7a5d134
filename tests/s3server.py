"""A real S3 server for tests: moto over HTTP on a free loopback port, in one thread.

One thread matters: threaded moto lets two creators of one key both win.
Fixtures: `s3_endpoint` (one server a session), `s3` (a fresh bucket and the options to reach it).
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from npa.storage import Store, StoreOptions, open_store
from npa.target.secret import Secret

ACCESS_KEY = "test-access-key"
SECRET_KEY = f"test-secret-{secrets.token_hex(12)}"  # so a search finds that of these tests only
REGION = "us-east-1"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class S3:
    """A fresh bucket on the test server."""

    endpoint: str
    bucket: str
    options: StoreOptions

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/"

    @property
    def environment(self) -> dict[str, str]:
        """What a child process needs to reach the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
        }

    def store(self, prefix: str = "") -> Store:
        return open_store(self.uri + prefix, self.options)


def options_for(endpoint: str) -> StoreOptions:
    return StoreOptions(endpoint, REGION, Secret(ACCESS_KEY), Secret(SECRET_KEY))


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=False)
    thread = threading.Thread(target=server.serve_forever, name="s3-server", daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def s3(s3_endpoint: str) -> S3:
    import urllib.request

    bucket = f"bucket-{next(_numbers)}"
    request = urllib.request.Request(f"{s3_endpoint}/{bucket}", method="PUT")
    with urllib.request.urlopen(request) as reply:
        assert reply.status == 200
    return S3(s3_endpoint, bucket, options_for(s3_endpoint))
