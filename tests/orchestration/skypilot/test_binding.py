"""A session is bound to principals and places, not to bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from npa.errors import UsageError
from npa.orchestration.skypilot.binding import (
    Fingerprint,
    changed,
    identity,
    kubeconfig_meaning,
    principal_of_token,
)

KEY = Fingerprint(b"session")


def web_token(**claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{body}.signature"


def kubeconfig(user: Mapping[str, Any], server: str = "https://k8s:443") -> str:
    return yaml.safe_dump(
        {
            "current-context": "ctx",
            "contexts": [
                {"name": "ctx", "context": {"cluster": "c", "user": "u", "namespace": "robots"}},
                {"name": "other", "context": {"cluster": "c", "user": "u"}},
            ],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": dict(user)}],
        }
    )


def meaning(user: Mapping[str, Any], context: str = "", **more: str) -> dict[str, str]:
    return kubeconfig_meaning(kubeconfig(user, **more), context, KEY)


@pytest.mark.req("A-09")
def test_a_refreshed_token_of_one_account_is_the_same_user() -> None:
    first = meaning({"token": web_token(iss="i", sub="robot", exp=1)})
    later = meaning({"token": web_token(iss="i", sub="robot", exp=2)})
    other = meaning({"token": web_token(iss="i", sub="person", exp=1)})
    assert changed(first, later) == ()
    assert changed(first, other) == ("kube.user",)


def test_order_comments_and_a_trailing_slash_change_nothing() -> None:
    text = kubeconfig({"username": "u"})
    turned = "# a comment\n" + yaml.safe_dump(yaml.safe_load(text), sort_keys=False)
    assert kubeconfig_meaning(text, "", KEY) == kubeconfig_meaning(turned, "", KEY)
    assert meaning({"username": "u"}) == meaning({"username": "u"}, server="https://K8S:443/")


def test_another_server_context_or_namespace_is_named() -> None:
    base = meaning({"username": "u"})
    assert changed(base, meaning({"username": "u"}, server="https://other")) == ("kube.server",)
    assert changed(base, meaning({"username": "u"}, "other")) == ("kube.context", "kube.namespace")


def test_an_exec_plug_in_is_its_command_and_arguments() -> None:
    one = meaning({"exec": {"command": "cli", "args": ["--profile", "a"]}})
    two = meaning({"exec": {"command": "cli", "args": ["--profile", "b"]}})
    assert changed(one, two) == ("kube.user",)


@pytest.mark.req("A-11")
def test_no_secret_is_in_the_facts() -> None:
    canary = "canary-1d2e"
    facts = identity(
        interpreter="/p",
        user_id="u",
        sky_config={},
        env={"AWS_SECRET_ACCESS_KEY": canary, "NEBIUS_IAM_TOKEN": canary},
        kubeconfig=kubeconfig({"token": canary}),
        context="",
        fingerprint=KEY,
    )
    assert canary not in json.dumps(facts)
    assert facts["kube.user"].startswith("token ")


def test_an_opaque_token_is_told_apart_by_a_keyed_digest() -> None:
    assert principal_of_token("a", KEY) == principal_of_token("a", KEY)
    assert principal_of_token("a", KEY) != principal_of_token("b", KEY)
    assert principal_of_token("a", KEY) != principal_of_token("a", Fingerprint(b"other"))


@pytest.mark.parametrize("text", ["", "[]", "{", "contexts: []", "a: 1"])
def test_a_kubeconfig_without_the_context_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        kubeconfig_meaning(text, "ctx", KEY)
