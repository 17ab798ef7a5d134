"""Workflows and renderer options drawn at random, nearly always sound; every construct comes up."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import yaml

from npa.catalog.loader import Catalog
from npa.orchestration.skypilot.options import ModelCache, RenderOptions, StagedSource

CATALOG = Catalog.built_in()
HEAD = {"apiVersion": "npa.workflow/v0.0.1", "kind": "Workflow"}
GATE = {"uri": "{{config.report_uri}}", "path": "metrics.score", "op": ">=", "value": 0.5}
SHA = "0" * 64
TEXTS = ("plain", "a b", "$'\"", "\\;|&", "é", "{x}", ": #", "{{config.word}}", "{{run.id}}", "yes")
TOOLS = (
    "core.artifact.copy", "core.gate.threshold", "workbench.vlm_eval.run", "workbench.sonic.train",
    "workbench.rl.policy_train", "workflow.groot.publish_learning", "workbench.groot.finetune",
    "workbench.cosmos3.text_to_image", "workbench.lerobot.policy_train", "workbench.byof.repo",
    "workbench.dataset.ingest",
)  # fmt: skip
VALUES = {"int": 3, "float": 0.5, "bool": True, "json": "{}", "path": "/tmp/x"}


def workflow(draw: random.Random) -> str:
    """One file. Most load without an error; what does not has a diagnostic."""
    return _Workflow(draw).text()


def options(draw: random.Random) -> RenderOptions:
    """Everything that a submit could add, each now and then."""
    some = _Chance(draw)
    digest = "@sha256:" + SHA
    cache = [ModelCache(claim="models"), ModelCache(host_path="/mnt/models")]
    tree = StagedSource("s3://b/tree.tar.gz", SHA, "f")
    images = {"*": "cr.example.org/all:1", "workbench.sonic": "private.example.org/s" + digest}
    return RenderOptions(
        images=draw.choice([images, {"*": ""}]) if some(3) else {},
        digests={"cr.example.org/all:1": "cr.example.org/all" + digest} if some(3) else {},
        registry="registry.example.org/mirror" if some(4) else "",
        accelerators={"H100": "NVIDIA-H100", "H100:8": "H100-SXM:8"} if some(4) else {},
        memory="64" if some(4) else "",
        infra=draw.choice(["k8s/here", "slurm/bed", "nebius"]) if some(2) else "",
        source=tree if some(2) else None,
        package=StagedSource("s3://b/theirs/") if some(6) else None,
        own_package=tree if some(2) else None,
        programs_uri="s3://b/r/npa-workflow/programs/" if some(2) else "",
        claims_uri="s3://b/r/npa-workflow/attempts/" if some(2) else "",
        provider="server-1",
        accept_eula=not some(5),
        private_hosts=frozenset(["private.example.org", "cr.example.org"] if some(3) else []),
        model_cache=draw.choice(cache) if some(2) else None,
        env={"SHARED": "x"} if some(4) else {},
        secrets=("HF_TOKEN",) if some(4) else (),
    )


class _Chance:
    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def __call__(self, of: int) -> bool:
        return self.draw.randrange(of) == 0


class _Workflow:
    """Draws states depth first; groups know whether they stand inside a fan-out."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.some = _Chance(draw)
        self.states: dict[str, dict[str, Any]] = {}
        self.config: dict[str, Any] = {
            "word": "w", "n": 2, "flag": True, "report_uri": "s3://b/report.json",
            "decision_uri": "s3://b/decision.json",
        }  # fmt: skip

    def text(self) -> str:
        top = [self.block(3, fanned=False) for _ in range(self.draw.randint(1, 4))]
        end = self.state({"terminal": True})
        for number, name in enumerate(top):
            later = [*top[number + 1 :], end]
            self.states[name]["next"] = later[0]
            self.branch(self.states[name], later)
        tree = {
            **HEAD,
            "metadata": {"name": "generated"},
            "config": self.config,
            "resources": {name: self.profile() for name in ("default", "p", "gang")},
            "initial": top[0],
            "states": self.states,
        }
        tree["resources"]["gang"]["num_nodes"] = self.draw.choice([2, 4, "{{config.n}}"])
        if self.some(8):
            self.spoil(tree)
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)

    def state(self, body: dict[str, Any]) -> str:
        long = "-" + "x" * 55 if self.some(12) else ""
        name = f"{self.draw.choice(['s', 'S', 'a-b', 'a_b'])}{len(self.states)}{long}"
        self.states[name] = body
        return name

    def branch(self, body: dict[str, Any], later: list[str]) -> None:
        if "run" not in body and "toolRef" not in body:
            return
        ways = [{"when": "loop_back"}, {"if": "config.flag"}, {"gate": GATE}]
        if self.some(3):
            body["transitions"] = [{**self.draw.choice(ways), "goto": self.draw.choice(later)}]

    def block(self, depth: int, *, fanned: bool) -> str:
        kinds: list[Callable[[], str]] = [lambda: self.leaf(fanned)] * 3
        if depth:
            kinds += [lambda: self.sequence(depth, fanned)] * 2
            kinds += [lambda: self.parallel(depth)] * (not fanned)
        return self.draw.choice(kinds)()

    def sequence(self, depth: int, fanned: bool) -> str:
        name = self.state({})
        body = self.states[name]
        if self.some(2):
            until = self.draw.choice([{}, {"until": "promote_checkpoint"}, {"gate": GATE},
                                      {"until": {"gate": GATE}}])  # fmt: skip
            body["loop"] = {"max": self.draw.choice([1, 2, 3, "config.n"]), **until}
        count = self.draw.randint(1, 3)
        members = [self.block(depth - 1, fanned=fanned) for _ in range(count)]
        body["sequence"] = members
        for at, member in enumerate(members[:-1]):
            self.branch(self.states[member], members[at + 1 :])
        return name

    def parallel(self, depth: int) -> str:
        name = self.state({})
        count = self.draw.randint(1, 5)
        body = self.states[name]
        if self.some(3):
            body["parallelMode"] = self.draw.choice(["group", "window"])
        if self.some(3):
            body["maxConcurrency"] = self.draw.choice([1, 2, "config.n"])
        if self.some(5):
            body["parallelCount"] = count
        deep = body.get("parallelMode") == "window" and self.some(3)
        body["parallel"] = [
            self.block(depth - 1, fanned=True) if deep else self.leaf(fanned=True)
            for _ in range(count)
        ]
        return name

    def leaf(self, fanned: bool) -> str:
        name = self.state({})
        body = self.states[name]
        if self.some(3):
            ref = self.draw.choice(TOOLS)
            body["toolRef"] = ref
            self.configure(ref)
        else:
            body["run"] = self.command()
        more: list[tuple[int, Callable[[], dict[str, Any]]]] = [
            (3, lambda: {"env": {"E": self.draw.choice(TEXTS)}}),
            (3, lambda: {"outputs": [{"uri": f"s3://b/{{{{run.id}}}}/{name}", "schema": "any"}]}),
            (6, lambda: {"inputs": [{"uri": "s3://b/in/"}]}),
            (5, lambda: {"retry": {"payload": 2, "backoffSeconds": 1.5}}),
            (5, lambda: {"timeoutSeconds": self.draw.choice([60, "config.n"])}),
            (5, lambda: {"secrets": ["HF_TOKEN"]}),
            (8, lambda: {"trigger": {"uri": "s3://b/in/", "pollSeconds": 5, "maxPolls": 2}}),
            (8, lambda: {"checkpoint": {"uri": f"s3://b/ckpt/{name}/", "loader": "torch"}}),
            (4, lambda: {"resources": "p"}),
            (6, lambda: {"params": {"word": "own"}} if "run" in body else {}),
            (6, lambda: {"description": "text"}),
        ]
        for of, make in more:
            if self.some(of):
                body |= make()
        if "run" in body and self.some(6):
            body |= {"multiNodeMode": "sharded", "resources": "gang"}
        if self.some(6):
            body["loop"] = {"max": self.draw.choice([1, 2, "config.n"])}
        elif self.some(5) and not fanned:
            items = self.draw.choice([["x", "y"], [1, 2, 3], ["{{config.word}}"]])
            body["foreach"] = {"items": items, "as": "shard"}
            body.pop("outputs", None)
        return name

    def command(self) -> dict[str, Any]:
        text = self.draw.choice(TEXTS)
        made: dict[str, Any] = self.draw.choice(
            [
                {"argv": ["echo", text]},
                {"argv": ["python3", "train.py", "--n", "{{config.n}}"]},
                {"argv": ["npa", "artifact", "ls", "{{run.uri}}"]},
                {"shell": f"echo '{text}' ${{HOME}}\n\n  if true; then :; fi\n"},
            ]
        )
        return {**made, **({"setup": "pip install x\n"} if self.some(4) else {})}

    def configure(self, ref: str) -> None:
        tool = CATALOG.get(ref)
        assert tool is not None
        for param in tool.params:
            value = VALUES.get(param.kind, f"s3://b/{param.key}")
            given = self.draw.choice(param.values) if param.values else value
            if param.required:
                self.config.setdefault(param.key, given)
        if ref == "workbench.vlm_eval.run":
            self.config["vlm_backend"] = self.draw.choice(["self-hosted", "api"])
            self.config["vlm_model"] = "org/model"
            self.config["vlm_trust_remote_code"] = self.some(2)
        if self.some(3):
            self.config["sim_backend"] = self.config["base_profile"] = "isaac"
        if self.some(6):
            self.config["source_sha"] = "ab" * 20
        if self.some(8):
            self.config["require_baked_npa"] = "true"
        if self.some(8):
            self.config["pip_extra"] = "viz"

    def profile(self) -> dict[str, Any]:
        pod = {"spec": {"nodeSelector": {"pool": "a"}, "containers": [{"name": "ray-node"}]}}
        drawn: list[tuple[int, dict[str, Any]]] = [
            (2, {"cloud": self.draw.choice(["kubernetes", "nebius", ""])}),
            (2, {"cpus": self.draw.choice([1, 4, "4+", 0.5, "8"])}),
            (2, {"memory": self.draw.choice([16, "16Gi", "16+", "16GB"])}),
            (3, {"accelerators": self.draw.choice(["H100:8", "H100", "L40S:1", {"H100": 2}])}),
            (4, {"disk_size": self.draw.choice([100, "100Gi", "128.5"])}),
            (6, {"use_spot": True}),
            (6, {"region": "eu-north1"}),
            (4, {"image": self.draw.choice(["tool://sonic", "cr.example.org/all:1"])}),
            (3, {"kubernetes": {"pod_config": pod, "provision_timeout": 600}}),
        ]
        return {key: value for of, part in drawn if self.some(of) for key, value in part.items()}

    def spoil(self, tree: dict[str, Any]) -> None:
        """One thing that is wrong, or ought to be refused by the renderer."""
        state = self.draw.choice(list(self.states.values()))
        wrong: list[dict[str, Any]] = [
            {"next": "nowhere"}, {"bogus": 1}, {"env": {"E": "${HOME}"}}, {"env": {"A-B": "x"}},
            {"env": {"SKYPILOT_NODE_RANK": "0"}}, {"loop": {"max": 0}}, {"resources": "absent"},
            {"env": {"E": "x" * 130_000}}, {"run": {"argv": ["{{config.absent}}"]}},
        ]  # fmt: skip
        if self.some(2):
            state.update(self.draw.choice(wrong))
        else:
            self.config |= self.draw.choice(
                [{"vlm_serve_port": "x"}, {"vlm_model": ""}, {"source_sha": "short"},
                 {"pip_extra": "a b"}]
            )  # fmt: skip
