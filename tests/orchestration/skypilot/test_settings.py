"""What a submit says of SkyPilot: where tasks go, and what is kept of it in the request."""

from __future__ import annotations

import pytest

from npa.errors import UsageError
from npa.orchestration.skypilot.settings import Cloud, Settings, parse_infra


@pytest.mark.parametrize(
    ("text", "cloud", "name"),
    [
        ("k8s/ctx", Cloud.KUBERNETES, "ctx"),
        ("kubernetes/a/b", Cloud.KUBERNETES, "a/b"),
        ("slurm/bed", Cloud.SLURM, "bed"),
        ("nebius", Cloud.NEBIUS, ""),
    ],
)
def test_an_infrastructure_is_a_cloud_and_a_name(text: str, cloud: Cloud, name: str) -> None:
    aim = parse_infra(text)
    assert (aim.cloud, aim.name) == (cloud, name)
    assert parse_infra(aim.infra) == aim


@pytest.mark.parametrize("text", ["", "k8s", "slurm", "slurm/", "aws", "nebius/x"])
def test_what_is_no_infrastructure_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_infra(text)
    assert "--infra" in caught.value.hint


def test_settings_keep_only_what_differs_and_read_back() -> None:
    settings = Settings(infra="slurm/bed", images={"*": "a/b:1"}, accept_eula=False)
    kept = settings.to_json()
    assert kept == {"infra": "slurm/bed", "images": {"*": "a/b:1"}, "accept_eula": False}
    assert Settings.from_json(kept) == settings
    assert Settings().to_json() == {}
