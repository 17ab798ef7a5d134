"""What a session is bound to, by meaning and not by bytes.

Bound are the principal, the place and the settings: which key ID, which cluster, which endpoint,
which SkyPilot configuration. A refreshed token, a reordered file or a comment changes none of them.
Facts hold no secret; where only the secret tells two principals apart, a keyed digest stands for it
(the key never leaves the session's folder).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping

import yaml
from msgspec import Struct

from npa.errors import UsageError

# Variables that say where and as whom; their values are no secrets.
PUBLIC = (
    "AWS_ACCESS_KEY_ID",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_REGION",
    "NEBIUS_PROFILE",
    "NPA_SKYPILOT_PROJECT",
)


class Fingerprint(Struct, frozen=True):
    """A keyed digest: equal secrets look equal within a session and tell nothing outside of it."""

    key: bytes

    def of(self, secret: str) -> str:
        return hmac.new(self.key, secret.encode(), hashlib.sha256).hexdigest()[:16]


def identity(
    *,
    interpreter: str,
    user_id: str,
    sky_config: Mapping[str, object],
    env: Mapping[str, str],
    kubeconfig: str,
    context: str,
    fingerprint: Fingerprint,
) -> dict[str, str]:
    """Name -> meaning. `kubeconfig` is the file's text, "" for none. Raises UsageError."""
    facts = {
        "interpreter": interpreter,
        "user_id": user_id,
        "sky_config": _digest(sky_config),
    }
    facts |= {name: env[name].rstrip("/") for name in PUBLIC if env.get(name)}
    # Without a key ID the secret itself is the principal (a bearer token of a cloud).
    if env.get("NEBIUS_IAM_TOKEN"):
        facts["NEBIUS_IAM_TOKEN"] = principal_of_token(env["NEBIUS_IAM_TOKEN"], fingerprint)
    if kubeconfig:
        facts |= kubeconfig_meaning(kubeconfig, context, fingerprint)
    return facts


def changed(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Names whose meaning differs, in order."""
    names = sorted({*then, *now})
    return tuple(name for name in names if then.get(name) != now.get(name))


def kubeconfig_meaning(text: str, context: str, fingerprint: Fingerprint) -> dict[str, str]:
    """Cluster, namespace and user behind one context of a kubeconfig. Raises UsageError."""
    try:
        document = yaml.safe_load(text)
        name = context or document["current-context"]
        chosen = _named(document["contexts"], name, "context")
        cluster = _named(document["clusters"], str(chosen["cluster"]), "cluster")
        user = _named(document["users"], str(chosen["user"]), "user")
        server = str(cluster["server"]).rstrip("/").lower()
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise UsageError(
            f"the kubeconfig has no usable context {context or '(current-context)'!r}",
            not_done="no API server was started",
            hint="`kubectl config get-contexts` lists what it has",
            code="KUBECONFIG",
        ) from error
    authority = str(
        cluster.get("certificate-authority-data") or cluster.get("certificate-authority")
    )
    return {
        "kube.context": str(name),
        "kube.server": server,
        "kube.authority": hashlib.sha256(authority.encode()).hexdigest()[:16],
        "kube.namespace": str(chosen.get("namespace") or "default"),
        "kube.user": _user(user, fingerprint),
    }


def _named(entries: object, name: str, kind: str) -> Mapping[str, object]:
    found = [entry[kind] for entry in entries if entry["name"] == name]  # type: ignore[attr-defined]
    if len(found) != 1 or not isinstance(found[0], dict):
        raise KeyError(name)
    return found[0]


def _user(user: Mapping[str, object], fingerprint: Fingerprint) -> str:
    """Who the cluster will see. A refreshed token of one account stays one user."""
    command = user.get("exec")
    if isinstance(command, Mapping):
        words = [command.get("command"), *(_words(command.get("args")))]
        return "exec " + _digest({"argv": [str(word) for word in words]})
    token = user.get("token")
    if isinstance(token, str):
        return principal_of_token(token, fingerprint)
    for key in ("tokenFile", "client-certificate", "username"):
        if user.get(key):
            return f"{key} {user[key]}"
    certificate = user.get("client-certificate-data")
    return f"certificate {fingerprint.of(str(certificate))}" if certificate else "anonymous"


def _words(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


def principal_of_token(token: str, fingerprint: Fingerprint) -> str:
    """Issuer and subject of a JSON Web Token; a keyed digest of any other token.

    The signature is not checked: this compares principals, the cluster decides on access.
    """
    parts = token.split(".")
    if len(parts) == 3:
        try:
            padded = parts[1] + "=" * (-len(parts[1]) % 4)
            claims = json.loads(base64.urlsafe_b64decode(padded))
            return f"token {claims['iss']} {claims['sub']}"
        except (binascii.Error, ValueError, KeyError, TypeError):
            pass
    return f"token {fingerprint.of(token)}"


def _digest(value: Mapping[str, object]) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
