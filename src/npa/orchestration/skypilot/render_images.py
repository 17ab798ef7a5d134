"""Which image a step runs in: overrides, the profile's own, the catalogue's; then digests."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from npa.catalog.entry import Entry
from npa.orchestration.skypilot.options import DEFAULT_REGISTRY, RenderOptions
from npa.orchestration.skypilot.render_errors import RenderError
from npa.workflow.step import Step

_TOOL_SCHEME = "tool://"
_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*(?:@sha256:[0-9a-f]{64})?")
_PUBLIC_HOSTS = frozenset(
    ["ghcr.io", "docker.io", "nvcr.io", "quay.io", "gcr.io", "public.ecr.aws"]
)
_TRUE = frozenset(["1", "true", "yes", "on"])


class Image(Struct, frozen=True):
    """`reference` "" means the provider's default image; `untagged`: its tag is not known here."""

    reference: str = ""
    untagged: bool = False

    @property
    def host(self) -> str:
        """The registry's host, `docker.io` when the reference names none; "" without an image."""
        first, slash, _ = self.reference.partition("/")
        if not self.reference:
            return ""
        named = slash and ("." in first or ":" in first or first == "localhost")
        return first if named else "docker.io"

    @property
    def pinned(self) -> bool:
        """Is it registry-qualified, with a digest?"""
        return bool(_DIGEST.fullmatch(self.reference)) and "/" in self.reference

    @property
    def public(self) -> bool:
        return self.host in _PUBLIC_HOSTS


def select_image(
    step: Step, entry: Entry | None, images: Mapping[str, str], options: RenderOptions
) -> Image:
    """The image of a step; `images` are the catalogue's. Raises RenderError."""
    override = _override(step.command.tool_ref, options.images)
    if override is not None:
        chosen = Image(override)
    elif step.profile.image:
        chosen = _expand(step.profile.image, images, options)
    elif entry is not None and entry.image:
        named = entry.image if "/" in entry.image else _TOOL_SCHEME + entry.image
        chosen = _expand(named, images, options)
    else:
        chosen = Image()
    if chosen.reference in options.digests:
        chosen = Image(options.digests[chosen.reference])
    if chosen.reference and not _REFERENCE.fullmatch(chosen.reference):
        raise RenderError(f"'{chosen.reference}' is no image reference", path=step.path)
    if requires_baked(step) and not chosen.pinned:
        raise RenderError(
            f"this workflow demands an image with a digest, not '{chosen.reference or 'none'}'",
            path=step.path,
            hint=f"name one: `--image {step.command.tool_ref or '*'}=REGISTRY/NAME@sha256:…`",
            code="IMAGE_NOT_PINNED",
        )
    return chosen


def requires_baked(step: Step) -> bool:
    """Does the workflow demand that the image brings the package (`config.require_baked_npa`)?"""
    return str(step.config.get("require_baked_npa", "")).strip().lower() in _TRUE


def source_commit(step: Step) -> str:
    """`config.source_sha`, "" when it is empty. Raises RenderError unless it is a whole commit."""
    value = str(step.config.get("source_sha") or "").strip()
    if value and not _COMMIT.fullmatch(value):
        raise RenderError(
            f"`config.source_sha` is '{value[:60]}', not a commit of 40 hex digits", path=step.path
        )
    return value


def _override(ref: str, overrides: Mapping[str, str]) -> str | None:
    """Exact, else the longest prefix on a dot, else `*`."""
    prefix = ref
    while prefix:
        if prefix in overrides:
            return overrides[prefix]
        prefix = prefix.rpartition(".")[0]
    return overrides.get("*")


def _expand(named: str, images: Mapping[str, str], options: RenderOptions) -> Image:
    if not named.startswith(_TOOL_SCHEME):
        return Image(named)
    key = named.removeprefix(_TOOL_SCHEME)
    registry = (options.registry or DEFAULT_REGISTRY).rstrip("/")
    known = images.get(key)
    if known is None:
        return Image(f"{registry}/npa-{key}", untagged=True)
    if options.registry and known.startswith(f"{DEFAULT_REGISTRY}/"):
        return Image(f"{registry}/{known.removeprefix(f'{DEFAULT_REGISTRY}/')}")
    return Image(known)
