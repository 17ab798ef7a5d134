"""Which storage identity is taken, and that nothing printable holds its secret."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest

from changed import replace
from npa.errors import UsageError
from npa.target.credentials import storage_access
from npa.target.home import Home

CANARY = "canary-4711"
PAIR = {"AWS_ACCESS_KEY_ID": "AK-ENV", "AWS_SECRET_ACCESS_KEY": CANARY}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "npa").make()


def write_config(home: Home, text: str) -> None:
    home.config_file.write_text(text)
    home.config_file.chmod(0o600)


CONFIG = f"""
storage:
  endpoint: https://storage.example.com
  region: eu-north1
  access_key_id: AK-CONFIG
  secret_access_key: {CANARY}
"""


def test_the_environment_comes_first(home: Home) -> None:
    write_config(home, CONFIG)
    access = storage_access({**PAIR, "AWS_ENDPOINT_URL": "https://env.example.com"}, home)
    assert (access.principal, access.source) == ("AK-ENV", "environment")
    assert access.options.endpoint == "https://env.example.com"
    assert access.options.region == "eu-north1"
    assert access.endpoint_host == "env.example.com"


def test_the_configuration_comes_second(home: Home) -> None:
    write_config(home, CONFIG)
    access = storage_access({}, home)
    assert access.principal == "AK-CONFIG"
    assert access.options.secret_key is not None
    assert access.options.secret_key.reveal() == CANARY


def test_the_shared_credentials_file_comes_third(home: Home, tmp_path: Path) -> None:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        f"[default]\naws_access_key_id = AK-SHARED\naws_secret_access_key = {CANARY}\n"
    )
    access = storage_access({"HOME": str(tmp_path)}, home)
    assert access.principal == "AK-SHARED"
    assert storage_access({"HOME": str(tmp_path), "AWS_PROFILE": "none"}, home).principal == ""


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "NEBIUS_S3_ENDPOINT", "S3_ENDPOINT_URL"])
def test_an_endpoint_goes_by_several_names(home: Home, name: str) -> None:
    assert storage_access({name: "https://e.example.com"}, home).endpoint_host == "e.example.com"


def test_a_pair_is_taken_whole_with_its_own_session_token(home: Home) -> None:
    write_config(home, CONFIG + f"  session_token: {CANARY}\n")
    assert storage_access(PAIR, home).options.session_token is None
    assert storage_access({}, home).options.session_token is not None


@pytest.mark.parametrize("half", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_a_pair_is_an_error_and_not_completed_elsewhere(home: Home, half: str) -> None:
    write_config(home, CONFIG)
    with pytest.raises(UsageError, match="incomplete"):
        storage_access({half: CANARY}, home)


def test_nothing_set_means_no_identity(home: Home) -> None:
    access = storage_access({}, home)
    assert (access.principal, access.env, access.secrets) == ("", {}, {})


@pytest.mark.req("A-09")
def test_a_task_gets_the_identity_by_the_usual_names(home: Home) -> None:
    access = storage_access({**PAIR, "AWS_ENDPOINT_URL": "https://e.example.com"}, home)
    assert access.env == {"AWS_ENDPOINT_URL": "https://e.example.com"}
    assert sorted(access.secrets) == ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]


def test_a_secret_that_others_may_read_is_refused(home: Home) -> None:
    write_config(home, CONFIG)
    home.config_file.chmod(0o644)
    with pytest.raises(UsageError) as caught:
        storage_access({}, home)
    assert caught.value.next_command.startswith("chmod 600")


BROKEN = [
    f"storage: {{secret_access_key: {CANARY}",
    f"- {CANARY}",
    f"storage: [{CANARY}]",
    f"storage: {{secret_acces_key: {CANARY}}}",
    f"storage: {{access_key_id: a, secret_access_key: ''}} # {CANARY}",
    f"storage:\n  endpoint: 'https://u:{CANARY}@h.example.com'",
]


@pytest.mark.req("A-11")
@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_configuration_is_reported_without_its_content(home: Home, text: str) -> None:
    write_config(home, text)
    with pytest.raises(UsageError) as caught:
        storage_access({}, home)
    shown = "".join(traceback.format_exception(caught.value)) + caught.value.hint
    assert CANARY not in shown


def test_a_broken_credentials_file_is_reported_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(f"{CANARY}\n[default]\n")
    with pytest.raises(UsageError) as caught:
        storage_access({"AWS_SHARED_CREDENTIALS_FILE": str(path)}, Home(tmp_path))
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.req("A-11")
def test_nothing_printable_holds_the_secret(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    access = storage_access({**PAIR, "AWS_SESSION_TOKEN": CANARY}, home)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("test").info("access %s %r %s", access, access.options, access.secrets)
    for thing in (access, access.options, access.secrets, replace(access, source="x")):
        assert CANARY not in f"{thing} {thing!r}"
    assert CANARY not in caplog.text
    assert CANARY not in str(access.env)
