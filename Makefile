# Podyard's commands. `make` prints this help.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
PYTEST := $(BIN)/python -m pytest
PACKAGES := podyard api scheduler workers pricing web migrations tests benchmarks
# The FOCUS validator needs Python 3.12, and its NumPy has nothing for later ones.
PYTHON_OF_focus := $(shell for p in python3.12 $$HOME/.pyenv/versions/3.12.*/bin/python3.12; do $$p -c '' >/dev/null 2>&1 && { echo $$p; break; }; done)
# JAX 0.11 needs Python 3.12.
PYTHON_OF_jax011 := $(PYTHON_OF_focus)
CLIENTS := $(if $(PYTHON_OF_focus),focus jax011) fastai flax gpuhunt jax09 ray sky storage tf torch
.DEFAULT_GOAL := help
# The test run starts hundreds of Python processes: without byte code, each compiles Podyard again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo test real client-names fast long mutants decision-hashes drawn-programs house-figures compiler-check money-histories kills kills-supervisor jax-slices soak soak-programs gcloud-leaks lint types format serve clean

help: ## Print this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{printf "  make %-16s %s\n", $$1, $$2}'

demo: ## Train on two emulated slices of TPU, and print the result and the bill
	@echo "Downloads JAX, scikit-learn and friends once (about 250 MB; 1 to 3 minutes), then runs for about a minute."
	@$(MAKE) --no-print-directory $(VENV)/.demo
	@$(BIN)/podyard demo

test: $(VENV)/.test lint types ## Before each change lands: lint, types, and all tests but those of `make real`: 15 minutes
	$(PYTEST) --tier test -n 2 --dist loadgroup

FILES :=
real: $(VENV)/.test ## Tests of real processes, kills, boxes, machines, the browser, clients (4.4 GB once); of FILES alone: 70 minutes
	$(BIN)/python -m tests.real $(FILES)

fast: $(VENV)/.test lint ## What to run before each commit: under a minute
	$(PYTEST) -q -n 2 -m "not slow" -p no:cacheprovider tests/unit tests/property

kills: $(VENV)/.test ## A job that survives 100 kills at random moments: 10 to 15 minutes
	$(BIN)/python -m tests.distributed.random_kills --kills 100

decision-hashes: $(VENV)/.test ## Compare the decisions of 41 simulated runs with the recorded ones: 2 minutes
	$(BIN)/python -m tests.simulation.decision_hashes --check

long: $(VENV)/.test ## Tests that both tiers leave out, and repetitions as often as the documents say: 200 seeds, 200 uploads, 20 kills of the leader
	PODYARD_TEST_LONG=1 $(PYTEST) -n 2 --dist loadgroup -m "long or repeats"

drawn-programs: $(VENV)/.test ## Read 1,050 drawn programs as functions and as StableHLO: both must come to the same: 1 minute
	PODYARD_DRAWN_PROGRAMS=1050 $(PYTEST) -q -n 2 tests/unit/engine/test_both_ways.py

mutants: $(VENV)/.test ## Plant 60 bugs, one at a time, and print what finds each of them: 3 minutes
	$(BIN)/python -m tests.simulation.mutant_table

money-histories: $(VENV)/.test ## Play 2,000 drawn rate cards and histories: all surfaces must name the same amounts (10 to 25 minutes)
	$(BIN)/python -m tests.store.billing_histories

BASE := new
image: $(VENV)/.test ## Run the steps of the container image on a Debian base (BASE, or a new one by debootstrap; root): 5 minutes
	PODYARD_TEST_IMAGE=$(BASE) $(PYTEST) -q -n 0 tests/distributed/test_deploy.py

SEED :=
compiler-check: $(VENV)/.test ## Compile a tenth of the recorded programs of today again (extra xla-tpu; SEED draws it): 5 minutes
	$(BIN)/python -m benchmarks.corpus.check $(if $(SEED),--seed $(SEED))

RECORD :=
house-figures: $(VENV)/.test ## Print the house figures with their limits; RECORD=1 lowers the limits to today's figures
	$(BIN)/python -m tests.house.figures $(if $(RECORD),--record)

KILLS := 20
kills-supervisor: $(VENV)/.test ## A job that survives KILLS (20) kills of the supervisor on the default ports: 5 to 10 minutes
	$(BIN)/python -m tests.distributed.supervisor_kills --kills $(KILLS)

ROUNDS := 20
TPU_CLIENT := gcloud
jax-slices: $(VENV)/.test ## jax.distributed on two v3-32 at once, ROUNDS (20) times, and as many killed gangs, by TPU_CLIENT (gcloud): 6 minutes
	$(BIN)/python -m tests.distributed.jax_slices --rounds $(ROUNDS) --client $(TPU_CLIENT)

FAULTS := 600
soak: $(VENV)/.test ## FAULTS (600) kills, cuts and pauses on three machines in namespaces, drawn by SEED (root, Linux; under 30 minutes)
	$(BIN)/python -m tests.distributed.machine_soak --faults $(FAULTS) $(if $(SEED),--seed $(SEED))

soak-programs: $(VENV)/.test ## Programs with up to 32 devices: thousands of steps that nobody waits for, and 50 interrupts: 5 minutes
	$(BIN)/python -m tests.programs.stress

gcloud-leaks: $(VENV)/.test ## 30 gcloud commands of other services: none may send a byte outside (root, Linux; 2 minutes)
	$(BIN)/python -m tests.contract.leaks

client-names: # The environments that this machine can have, for tests/real/environments.py
	@echo $(CLIENTS)

lint: $(VENV)/.test ## Style, types, layers, dead code
	$(BIN)/ruff check $(PACKAGES)
	$(BIN)/ruff format --check $(PACKAGES)
	$(BIN)/python -m tests.typecheck
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.dead_code

types: $(VENV)/.test ## Types of tests and benchmarks; make lint checks those of the product
	$(BIN)/python -m tests.typecheck -p tests -p benchmarks

format: $(VENV)/.test ## Put the style right
	$(BIN)/ruff check --fix $(PACKAGES)
	$(BIN)/ruff format $(PACKAGES)

serve: $(VENV)/.demo ## Start Podyard in the foreground
	$(BIN)/podyard up

clean: ## Remove what the build and the tests leave
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "Podyard needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "This Python has no venv module: apt-get install python3-venv (or set PYTHON to another one)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip 2>/dev/null || true
	@touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml setup.py
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]' 2>$(VENV)/pip.log || { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $@

$(VENV)/.test: $(VENV)/.made pyproject.toml setup.py
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]' 2>$(VENV)/pip.log || { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $@ $(VENV)/.demo

# What a client pins and its neighbours cannot live with is in a second file, installed without its dependencies.
.SECONDEXPANSION:
.venv-clients/%/.made: tests/clients/%.txt $$(wildcard tests/clients/%.no-deps.txt) | $(VENV)/.made
	@echo "Installs the environment of $* (1 to 3 minutes)"
	@rm -rf $(@D) && $(or $(PYTHON_OF_$*),$(BIN)/python) -m venv $(@D)
	@for file in $^; do \
		flags=; case $$file in *.no-deps.txt) flags=--no-deps;; esac; \
		$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $$flags -r $$file 2>$(@D)/pip.log || { cat $(@D)/pip.log >&2; exit 1; }; \
	done
	@touch $@
