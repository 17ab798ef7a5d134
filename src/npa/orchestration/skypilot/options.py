"""What the renderer is told beside the steps: settled once by the command, then only read."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from npa.errors import UsageError

DEFAULT_REGISTRY = "ghcr.io/nebius/nebius-physical-ai"
MODEL_CACHE_PATH = "/opt/npa-model-cache"


class StagedSource(Struct, frozen=True):
    """Source at a URI: one archive with its SHA-256, or a prefix (ends in `/`) of objects.

    `fingerprint` is that of the scanned tree; a source that somebody set by hand has none.
    """

    uri: str
    sha256: str = ""
    fingerprint: str = ""

    @property
    def proven(self) -> bool:
        """Is it known what lies there?"""
        return bool(self.fingerprint and self.sha256)


class ModelCache(Struct, frozen=True):
    """A durable model cache of Kubernetes pods: a claim by name, or a path of the node."""

    claim: str = ""
    host_path: str = ""

    def __post_init__(self) -> None:
        if bool(self.claim) == bool(self.host_path):
            raise UsageError("a model cache is either a claim or a path of the node")


class RenderOptions(Struct, frozen=True):
    """Everything outside the workflow that changes what is rendered. No secret's value.

    images      overrides of images: by toolRef, by a prefix of it, or `*`; "" means no image
    digests     image reference -> reference with a digest
    registry    replaces the registry of the catalogue's public images
    accelerators  spelling in the file (`H100:1`) or name -> what the cluster calls it
    memory      replaces the memory of profiles with accelerators (for example `64`)
    infra       where tasks go (`k8s/<context>`, `slurm/<cluster>`); "" leaves the profile's cloud
    source      the pipeline's own files; they come first, and commands run in their folder
    package     a package tree of the user, which comes before what any image carries
    own_package  our own package, for tools of ours and for commands of the user that may use it
    programs_uri  folder of the programs of all tasks, each under its hash; "": in each document
    claims_uri  folder of the attempts' claims (ends in `/`); "" switches the payload fence off
    provider    names the provider's job queue in a claim: job IDs are unique only there
    private_hosts  registry hosts for which the user gave Docker credentials
    env         public variables of every task
    secrets     names of secrets that every task gets
    """

    images: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    registry: str = ""
    accelerators: Mapping[str, str] = field(default_factory=dict)
    memory: str = ""
    infra: str = ""
    source: StagedSource | None = None
    package: StagedSource | None = None
    own_package: StagedSource | None = None
    programs_uri: str = ""
    claims_uri: str = ""
    provider: str = ""
    accept_eula: bool = True
    private_hosts: frozenset[str] = frozenset()
    model_cache: ModelCache | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
