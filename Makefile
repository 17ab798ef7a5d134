# The project's commands. `make help` lists them; the first ones to try are `make demo` and `make test`.
# Set-up is done once and kept in .venv; a second `make` needs no network.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_PYTEST := $(BIN)/python -m pytest
WORKERS ?= auto
SEEDS ?= 2000
FAULTS ?= 200
REPLAY ?=
MINUTES ?= 10
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help demo test simulate e2e-local e2e-skypilot fuzz lint chaos format requirements lock bench clean

help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

demo: $(VENV)/.demo ## set up, then run the digits pipeline on this machine
	@$(BIN)/npa workbench workflow submit examples/digits/pipeline.yaml --engine local

test: lint ## set up, then format check, lint, types, layers and all tests but the long ones
	@$(RUN_PYTEST) -n $(WORKERS) -m "not e2e and not exhaustive"

simulate: $(VENV)/.dev ## drawn schedules against the simulated world (SEEDS=2000 FAULTS=200, or REPLAY=...)
	@PYTHONPATH=tests $(BIN)/python -m simulation --seeds $(SEEDS) --faults $(FAULTS) --replay '$(REPLAY)'

e2e-local: $(VENV)/.bdd100k ## run the bdd100k pipeline on this machine, and check what it measured
	@$(RUN_PYTEST) tests/e2e/test_bdd100k.py -m e2e

e2e-skypilot: $(VENV)/.dev ## a real SkyPilot on a real Slurm of four fake nodes here (Debian, root), 25 minutes
	@scripts/e2e-skypilot.sh

fuzz: $(VENV)/fuzz/.made ## fuzz the loader for MINUTES=10, guided by the branches that it reaches
	@PYTHONPATH=src:tests $(VENV)/fuzz/bin/python -m fuzz.campaign --minutes $(MINUTES)

lint: $(VENV)/.dev ## format check, lint, types and layers
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

chaos: $(VENV)/.dev ## kill the real driver KILLS=200 times, resume it, and check that nothing is lost or run twice
	@PYTHONPATH=tests $(BIN)/python -m chaos.campaign --kills $(or $(KILLS),200) $(if $(SEED),--seed $(SEED))

format: $(VENV)/.dev ## format and sort imports
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

requirements: $(VENV)/.dev ## each requirement's ID with the tests that prove it
	@$(BIN)/python scripts/requirements.py

lock: $(VENV)/.dev ## resolve the dependencies again and write the locks
	@scripts/lock.sh

bench: $(VENV)/.dev ## what the engine costs beside its floors (`benchmarks/README.md`: with peers)
	@$(BIN)/python benchmarks/run.py $(BENCH)

clean: ## remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# One environment, several sets: each lock holds the ones before it, so a larger set only adds.
$(VENV)/.demo: requirements-demo.lock pyproject.toml scripts/setup.sh
	@scripts/setup.sh requirements-demo.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml scripts/setup.sh
	@scripts/setup.sh requirements-dev.lock
	@touch $@ $(VENV)/.demo

$(VENV)/.bdd100k: requirements-bdd100k.lock pyproject.toml scripts/setup.sh
	@scripts/setup.sh requirements-bdd100k.lock
	@touch $@ $(VENV)/.dev $(VENV)/.demo

# Apart from the others: atheris has no builds for every Python, and instruments what it imports.
$(VENV)/fuzz/.made: requirements.lock tests/fuzz/requirements.txt $(VENV)/.dev
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/fuzz
	@$(BIN)/uv pip install --quiet --python $(VENV)/fuzz/bin/python --only-binary :all: \
		-r requirements.lock -r tests/fuzz/requirements.txt
	@touch $@
