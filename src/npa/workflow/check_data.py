"""Rules about data: who writes which artifact, and whether what is read was ever written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from npa.workflow.check_context import SAMPLE_RUN_ID, SAMPLE_RUN_URI, Context
from npa.workflow.codes import Code
from npa.workflow.diagnostics import Diagnostic, report
from npa.workflow.meaning import State, Workflow
from npa.workflow.order import Before
from npa.workflow.tokens import Scopes, Token, UnresolvedToken, parse, text_of

PLACEHOLDER_BUCKETS = frozenset({"", "example-bucket", "your-bucket", "my-bucket"})


class _Uris:
    """Resolves URIs as a run would, with a sample run; loop numbers and items stay as tokens."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._outputs: dict[str, tuple[str, ...]] = {}
        self._base = Scopes(config=ctx.resolved, run=ctx.sample_run)

    def resolve(self, state: State, uri: str) -> str:
        """The URI, or "" if it cannot be known."""
        if "{{" not in uri:
            return uri
        try:
            return parse(uri).render(self._lookup(state))
        except UnresolvedToken:
            return ""

    def outputs(self, state: State) -> tuple[str, ...]:
        if state.name not in self._outputs:
            self._outputs[state.name] = ()  # a state whose outputs mention themselves
            self._outputs[state.name] = tuple(self.resolve(state, io.uri) for io in state.outputs)
        return self._outputs[state.name]

    def _lookup(self, state: State) -> Callable[[Token], object]:
        scopes = self._base
        if state.params:
            own = {key: self._param(value) for key, value in state.params.items()}
            scopes = Scopes(config={**self._base.config, **own}, run=self._base.run)
        return lambda token: self._value(scopes, token)

    def _param(self, value: object) -> object:
        """A param sees the base config, not its siblings."""
        if not isinstance(value, str) or "{{" not in value:
            return value
        return parse(value).render(lambda token: self._value(self._base, token))

    def _value(self, scopes: Scopes, token: Token) -> object:
        if token.scope in ("loop", "item"):
            return "{{" + token.scope + "." + token.key + "}}"
        if token.scope == "state":
            raise UnresolvedToken("known in a run only")
        return scopes.lookup(token)


def _writers(
    ctx: Context, uris: _Uris, *, unreached: bool = False
) -> dict[str, list[tuple[State, int]]]:
    """Who declares which output, by resolved URI; states in file order."""
    writers: dict[str, list[tuple[State, int]]] = {}
    for state in ctx.workflow.states.values():
        if unreached or state.name in ctx.reach:
            for number, uri in enumerate(uris.outputs(state)):
                if uri:
                    writers.setdefault(uri, []).append((state, number))
    return writers


def outputs_once(ctx: Context) -> None:
    """Two steps that write one URI: an error if they may run at once, else a warning."""
    uris = _Uris(ctx)
    for uri, found in _writers(ctx, uris).items():
        state, number = found[0]
        if state.foreach is not None and "{{item." not in uri:
            ctx.add(
                Code.SAME_OUTPUT,
                f"all items of '{state.name}' would write the same output",
                ctx.path(state, "outputs", number, "uri"),
                help=f"put `{{{{item.{state.foreach.as_}}}}}` into the URI",
            )
        for (first, _), (second, at) in pairwise(found):
            _compare(ctx, first, second, at)


def _compare(ctx: Context, first: State, second: State, number: int) -> None:
    path = ctx.path(second, "outputs", number, "uri")
    if first is second:
        ctx.add(Code.SAME_OUTPUT, f"'{second.name}' declares this output twice", path)
        return
    relation = Before.UNKNOWN
    if ctx.order is not None:
        relation = ctx.order.before(first.name, second.name)
    if relation is Before.TOGETHER:
        ctx.add(
            Code.SAME_OUTPUT,
            f"'{first.name}' and '{second.name}' run at the same time and write the same output",
            path,
            help="give each a URI of its own",
        )
    elif relation is Before.ALWAYS or (
        ctx.order is not None and ctx.order.before(second.name, first.name) is Before.ALWAYS
    ):
        ctx.add(
            Code.OUTPUT_REWRITTEN,
            f"'{first.name}' and '{second.name}' write the same output",
            path,
            help="a finished step is not repeated while its outputs are valid; use two URIs",
        )


def _parents(uri: str) -> list[str]:
    """All prefixes of a URI that end in `/`, shortest first."""
    return [uri[: i + 1] for i, ch in enumerate(uri) if ch == "/"]


def _run_prefixes(ctx: Context) -> tuple[str, ...]:
    prefixes = [SAMPLE_RUN_URI]
    bucket, prefix = ctx.resolved.get("bucket"), ctx.sample_run.get("prefix")
    if isinstance(bucket, str) and isinstance(prefix, str) and bucket and prefix.strip("/"):
        prefixes.append(f"s3://{bucket}/{prefix.strip('/')}/")
    return tuple(prefixes)


def inputs_written(ctx: Context) -> None:
    """An input under the run's own prefix that no step of the run writes."""
    uris = _Uris(ctx)
    # While a way on is missing or wrong, a writer may be reached once that is mended.
    writers = _writers(ctx, uris, unreached=ctx.leads_astray or bool(ctx.dead_ends))
    written = set(writers)
    folders = {parent for uri in written for parent in _parents(uri)}
    mine = _run_prefixes(ctx)
    for state in ctx.workflow.states.values():
        if state.name not in ctx.reach or state.trigger is not None:
            continue
        for number, io in enumerate(state.inputs):
            uri = uris.resolve(state, io.uri)
            if not uri or not (uri.startswith(mine) or SAMPLE_RUN_ID in uri):
                continue
            covered = uri in written or (uri.endswith("/") and uri in folders)
            if not covered and not any(parent in written for parent in _parents(uri)):
                ctx.add(
                    Code.INPUT_NOT_WRITTEN,
                    f"no step writes this input of '{state.name}'",
                    ctx.path(state, "inputs", number, "uri"),
                    help=_near(ctx, writers, uri)
                    or "it lies under the run's own prefix; declare it as an output somewhere",
                )


def _near(ctx: Context, writers: Mapping[str, list[tuple[State, int]]], uri: str) -> str:
    """The output that was probably meant, as it is written in the file, or ""."""
    ends = {_end(ctx, other): other for other in writers}
    found = ctx.suggest.closest(_end(ctx, uri), ends)
    if not found:
        return ""
    state, number = writers[ends[found]][0]
    return f"did you mean '{state.outputs[number].uri}', which '{state.name}' writes?"


def _end(ctx: Context, uri: str) -> str:
    """A URI without what all URIs of a run share, so that a small slip stands out."""
    for prefix in _run_prefixes(ctx):
        uri = uri.removeprefix(prefix)
    return uri


def placeholder_bucket(config: Mapping[str, object]) -> bool:
    """Is `config.bucket` an example that nobody replaced?"""
    bucket = config.get("bucket")
    if not isinstance(bucket, str):
        return False
    return bucket.strip() in PLACEHOLDER_BUCKETS or "<" in bucket or ">" in bucket


def live_problems(workflow: Workflow) -> tuple[Diagnostic, ...]:
    """What is an error on a live submit only: a placeholder bucket."""
    if not placeholder_bucket(workflow.config):
        return ()
    bucket = text_of(workflow.config["bucket"])
    return (
        report(
            Code.PLACEHOLDER_BUCKET,
            f"config.bucket is the placeholder {bucket!r}",
            workflow.positions,
            ("config", "bucket"),
            help="pass `--var bucket=NAME`",
        ),
    )


DATA_RULES = (outputs_once, inputs_written)
