"""From an attempt to a job: the environment that every task gets, whichever engine runs it.

The variables are listed for users in docs/stages.md. Rank variables are the engine's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from npa.orchestration.engine import Job, Task
from npa.orchestration.journal.entries import Cause
from npa.orchestration.seal import plain
from npa.orchestration.state import Attempt
from npa.target.secret import Secret
from npa.workflow.overrides import typed
from npa.workflow.step import Artifact, Step


class JobSettings(Struct, frozen=True, eq=False):
    """What all jobs of a run share.

    `env` and `secrets` go to every task (storage access, variables named at submit);
    `named_secrets` only to tasks whose state asks for them by name. `defaults` are the file's own
    values of the keys that `--var` set: their types are those of NPA_PARAMS.
    """

    run_id: str
    run_uri: str
    workflow: str
    workdir: str
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    named_secrets: Mapping[str, Secret] = field(default_factory=dict)
    grace_seconds: float = 10.0
    defaults: Mapping[str, object] = field(default_factory=dict)


def build_job(settings: JobSettings, attempt: Attempt, steps: Sequence[Step]) -> Job:
    """The job of one attempt. Its name and key were journalled when it was reserved."""
    return Job(
        name=attempt.name,
        key=attempt.key,
        tasks=tuple(_task(settings, attempt, s) for s in steps),
        workdir=settings.workdir,
        grace_seconds=settings.grace_seconds,
    )


def _task(settings: JobSettings, attempt: Attempt, step: Step) -> Task:
    env = {
        **settings.env,
        "NPA_WORKFLOW_NAME": settings.workflow,
        "NPA_WORKFLOW_RUN_ID": settings.run_id,
        "NPA_WORKFLOW_STATE": step.state,
        "NPA_WORKFLOW_PATH": step.path,
        "NPA_WORKFLOW_ATTEMPT": str(attempt.number),
        "NPA_WORKFLOW_ATTEMPT_ID": attempt.key,
        "NPA_RUN_URI": settings.run_uri,
        "NPA_INPUTS": _artifacts(step.inputs),
        "NPA_OUTPUTS": _artifacts(step.outputs),
        "NPA_PARAMS": json.dumps(plain(_params(settings, step)), ensure_ascii=False),
        "NPA_DECISION_URI": step.decision_uri,
        **_checkpoint(attempt, step),
        **dict(step.env),
    }
    secrets = {
        **settings.secrets,
        **{n: settings.named_secrets[n] for n in step.secrets if n in settings.named_secrets},
    }
    return Task(step=step, env=env, secrets=secrets)


def _params(settings: JobSettings, step: Step) -> Mapping[str, object]:
    if not settings.defaults:
        return step.config
    return typed(step.config, step.params, settings.defaults)


def _checkpoint(attempt: Attempt, step: Step) -> dict[str, str]:
    """Where to go on: only for the successor of an attempt that the infrastructure ended.

    A retry of the program's own failure starts afresh, because its checkpoint may hold the fault.
    """
    if step.checkpoint is None or attempt.cause is not Cause.RECOVERY:
        return {}
    return {
        "NPA_CHECKPOINT_URI": step.checkpoint.uri,
        "NPA_CHECKPOINT_LOADER": step.checkpoint.loader,
    }


def _artifacts(artifacts: Sequence[Artifact]) -> str:
    return json.dumps([{"uri": a.uri, "schema": a.schema} for a in artifacts], ensure_ascii=False)
