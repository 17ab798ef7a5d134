"""What a submit says of SkyPilot beside the workflow; kept in the run's request."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from npa.errors import UsageError
from npa.orchestration.skypilot.configs import Controller
from npa.workflow.suggest import Suggester


class Cloud(Enum):
    """Where tasks can go."""

    KUBERNETES = "k8s"
    SLURM = "slurm"
    NEBIUS = "nebius"


_CLOUDS = {"kubernetes": Cloud.KUBERNETES, **{cloud.value: cloud for cloud in Cloud}}


class Aim(Struct, frozen=True):
    """`--infra`, taken apart. `name` is the context or the cluster."""

    cloud: Cloud
    name: str = ""

    @property
    def infra(self) -> str:
        return f"{self.cloud.value}/{self.name}" if self.name else self.cloud.value


def parse_infra(text: str) -> Aim:
    """`k8s/<context>`, `slurm/<cluster>` or `nebius`. Raises UsageError."""
    word, slash, name = text.partition("/")
    cloud = _CLOUDS.get(word)
    if cloud is not None and bool(name) == (cloud is not Cloud.NEBIUS):
        return Aim(cloud, name)
    meant = Suggester().closest(word, _CLOUDS) if cloud is None else ""
    close = f"did you mean `{meant}{slash}{name}`? " if meant else ""
    raise UsageError(
        f"`{text}` is no infrastructure" if text else "no infrastructure is named",
        not_done="nothing was started",
        hint=f"{close}`--infra k8s/CONTEXT`, `--infra slurm/CLUSTER` or `--infra nebius`",
        code="INFRA",
    )


class Settings(Struct, frozen=True):
    """`session` is the folder of the run's API server, so that another home finds the same one.

    `images` are overrides (by toolRef, by a prefix of it, or `*`), `digests` pins of references.
    `sky_bin`, `kubeconfig` and `slurm_config` are absolute paths; "" for the usual places.
    """

    infra: str = ""
    session: str = ""
    sky_bin: str = ""
    kubeconfig: str = ""
    slurm_config: str = ""
    controller: str = Controller.KUBERNETES.value
    images: Mapping[str, str] = field(default_factory=dict)
    registry: str = ""
    accept_eula: bool = True

    @property
    def aim(self) -> Aim:
        return parse_infra(self.infra)

    @property
    def root(self) -> Path:
        return Path(self.session)

    def to_json(self) -> dict[str, object]:
        """Only what differs from the defaults."""
        plain = Settings()
        return {n: v for n, v in asdict(self).items() if v != getattr(plain, n)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Settings:
        return cls(**raw)
