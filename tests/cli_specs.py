"""Small pipelines for the tests of commands, and how they are written beside the test."""

from __future__ import annotations

from pathlib import Path

HEAD = "apiVersion: npa.workflow/v0.0.1\nkind: Workflow\n"

TWO_STEPS = (
    HEAD
    + """metadata: {name: two}
config:
  word: hello
initial: first
states:
  first:
    run:
      shell: |
        echo {{config.word|quote}} > word.txt
        cat word.txt
        npa artifact put word.txt "{{run.uri}}first/word.txt" 2>/dev/null
    outputs: [{uri: "{{run.uri}}first/word.txt"}]
    next: second
  second:
    run: {shell: "echo second; echo last >&2"}
    terminal: true
"""
)

FAILS_AT_SECOND = TWO_STEPS.replace("echo last >&2", "echo no such data >&2; exit 3")

# Waits until the file `go` lies beside the pipeline, whose folder the test names.
WAITS = (
    HEAD
    + """metadata: {name: waits}
config: {folder: none}
initial: wait
states:
  wait:
    run:
      shell: |
        echo waiting
        for n in $(seq 600); do test -e {{config.folder|quote}}/go && exit 0; sleep 0.05; done
        exit 9
    terminal: true
"""
)

# A state that succeeds at its second attempt.
LATER = """  later:
    run: {shell: "echo attempt $NPA_WORKFLOW_ATTEMPT; test $NPA_WORKFLOW_ATTEMPT -ge 2"}
    retry: {payload: 1, backoffSeconds: 0}
    terminal: true
"""

WRONG = (
    HEAD
    + """metadata: {name: wrong}
initial: first
states:
  first:
    run: {shell: "echo hi"}
    next: secnd
  second:
    terminl: true
"""
)

BRANCHES = (
    HEAD
    + """metadata: {name: branches}
config: {limit: 2}
initial: refine
states:
  refine:
    sequence: [train, grade]
    loop: {max: config.limit, until: promote_checkpoint}
    next: fan
  train:
    run: {argv: [python3, -c, "print('train')"]}
  grade:
    writesDecision: true
    run: {shell: "echo grade"}
    outputs: [{uri: "{{run.uri}}{{loop.refine}}/decision.json", schema: decision}]
  fan:
    parallel: [left, right]
    next: end
  left:
    run: {shell: "echo left"}
  right:
    run: {shell: "echo right"}
  end:
    run: {shell: "echo end"}
    terminal: true
"""
)


def write(folder: Path, text: str, name: str = "p.yaml") -> Path:
    """Write a pipeline into a folder of its own, so that its source tree is the file alone."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Path(name)
