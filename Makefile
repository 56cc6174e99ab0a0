# Trimaran's tasks. Needs make and Python 3.11 to 3.14; everything else goes into .venv.

VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.installed-core
STAMP := $(VENV)/.installed-suite
PACKAGES := service_api archive client cluster src
SOURCES := $(PACKAGES) $(wildcard benchmarks examples notebooks) tests

.DEFAULT_GOAL := help
.PHONY: help setup setup-report setup-spark setup-test setup-dev constraints constraints-age compiled demo notebooks test test-kernel test-lab test-operating test-data test-services check campaign flaky coverage sim fuzz chaos flipped-bits power-backup upgrade-test format bench bench-many peers bench-guard clean

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

setup: $(CORE)  ## Create .venv with trimaran in it: nodes, clients and every command but `report`.

setup-report: $(VENV)/.installed-report  ## Add what `report` needs (0.5 GB).

setup-spark: $(VENV)/.installed-report $(VENV)/.installed-spark  ## Add Spark, a Java and what `report` needs (1 GB).

setup-test: $(STAMP)  ## Add what `make test` needs, with Spark and notebooks (a minute, 1.5 GB).

DEVELOPMENT := $(addprefix $(VENV)/.installed-,suite check campaign fuzz)

setup-dev: $(DEVELOPMENT)  ## Add what any target here needs; each also adds its own (2 GB).

# These run again only when one of the two files changed. `PYTHON=/path/to/python make setup` picks the interpreter.
$(CORE): pyproject.toml constraints.txt
	@set -eu; \
	found=""; \
	for candidate in $${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do \
	    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	        found="$$candidate"; break; \
	    fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "make: no Python 3.11 to 3.14 with the modules venv and ensurepip on PATH" >&2; \
	    echo "install one (Debian: apt-get install python3-venv) or say PYTHON=/path/to/python" >&2; \
	    exit 1; \
	fi; \
	if ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "==> creating $(VENV) with $$("$$found" --version) (4 s)"; \
	    "$$found" -m venv --clear $(VENV) || { echo "make: cannot create $(VENV): is this disk full, or read-only?" >&2; exit 1; }; \
	fi; \
	$(BIN)/python -m tests.set_up core; \
	touch $(CORE)

$(VENV)/.installed-%: $(CORE)
	@$(BIN)/python -m tests.set_up $*
	@touch $@

constraints: $(CORE)  ## Choose the newest releases of all packages for constraints.txt (a minute).
	@$(BIN)/python -m tests.constraints make

constraints-age: $(CORE)  ## Print which releases in constraints.txt are not the newest.
	@$(BIN)/python -m tests.constraints age

# A node starts a quarter sooner from bytecode, which pip leaves out here and Python itself may be told not to keep.
compiled: $(CORE)
	@$(BIN)/python -m compileall -q -j 0 $(PACKAGES)

demo: $(CORE) compiled  ## Run three nodes, kill the leader half-way, check every reply.
	@$(BIN)/trimaran demo $(ARGS)

# Jupyter refuses to run as root unless told; it listens on loopback only, and asks for the token that it prints.
notebooks: $(VENV)/.installed-notebooks  ## Open JupyterLab on the notebooks; on a machine without a browser follow the address it prints.
	@$(BIN)/jupyter lab --ServerApp.ip=127.0.0.1 --ServerApp.root_dir=notebooks $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

# One worker more than there are cores runs the suite, since many tests wait for a process or a timer.
# `make test WORKERS=0` runs it in one process, for a debugger.
SUITE := $(BIN)/python -m tests.runner $(if $(WORKERS),--workers $(WORKERS))

FAST_TESTS := $(wildcard tests/test_*.py) tests/fuzz tests/scenarios $(addprefix tests/unit/,service_api client cluster/core)

test: $(STAMP) compiled  ## Run the whole suite (about twelve minutes on two cores).
	@$(SUITE) $(ARGS)

# docs/parts has a page for the owner of each part; tests/parts.py says which tests are of which part.
test-kernel test-lab test-operating test-data test-services: $(STAMP) compiled  ## Run the fast tests of one part (three minutes).
	@paths=$$($(BIN)/python -m tests.parts $(@:test-%=%)) && $(SUITE) -q -m 'not slow and not campaign' $$paths $(ARGS)

# What runs on every operating system; docs/platforms.md says what else does.
EVERYWHERE := $(addprefix src/trimaran/,service_api client archive)

check: $(STAMP) $(VENV)/.installed-check  ## Format, lint, types, import rules, known dangers and the fastest tests (about a minute).
	@echo "==> format"; $(BIN)/ruff format --check --quiet $(SOURCES) || { echo "run: make format" >&2; exit 1; }
	@echo "==> lint"; $(BIN)/ruff check --quiet $(SOURCES)
	@echo "==> types"; $(BIN)/mypy
	@for platform in darwin win32; do \
	    echo "==> types on $$platform"; $(BIN)/mypy --platform $$platform --cache-dir .mypy_cache/$$platform $(EVERYWHERE) || exit 1; \
	done
	@echo "==> import rules"; $(BIN)/lint-imports
	@echo "==> what bandit knows"; $(BIN)/bandit --quiet --recursive --configfile pyproject.toml -ll $(PACKAGES) benchmarks 2>/dev/null
	@echo "==> known vulnerabilities"; found=$$($(BIN)/pip-audit --local --progress-spinner off 2>&1) \
	    || case "$$found" in *"known vulnerabilit"*) echo "$$found" >&2; exit 1;; esac; \
	    case "$$found" in *"could not be audited"* | *rror*) echo "    not all could be looked up: no network?";; esac
	@echo "==> fast tests"; $(SUITE) -q -m 'not slow and not campaign' $(FAST_TESTS) $(ARGS)

campaign: $(STAMP) $(VENV)/.installed-campaign compiled  ## Run what the suite has only a sample of: every notebook, peer, plant and long log.
	@$(SUITE) -m campaign $(ARGS)

# It goes on where the last one stopped; MINUTES=0 prints the table alone.
BUSY ?= 4

flaky: $(STAMP) compiled  ## Hunt for tests that fail by chance: for MINUTES=10, beside BUSY=4 processes that count.
	@$(BIN)/python -m tests.hunt --minutes $(MINUTES) --busy $(BUSY) $(ARGS)

coverage: $(STAMP) $(VENV)/.installed-check compiled  ## Run the suite and print which branches it does not take; ARGS='-m ""' adds the campaign.
	@$(SUITE) --cov --cov-report=term-missing:skip-covered $(ARGS)

# A fresh range of seeds each time; `make sim FROM=0` takes a certain one.
SEEDS ?= 2000
FROM ?= $(shell date +%s)000

sim: $(STAMP)  ## Simulate SEEDS=2000 fresh seeds on all cores, then find every planted bug.
	@echo "==> $(SEEDS) seeds from $(FROM)"
	@$(BIN)/trimaran sim --seeds $(FROM):$$(($(FROM) + $(SEEDS))) $(ARGS)
	@echo "==> planted bugs"
	@$(BIN)/python -m tests.simulation.plants --seeds $(SEEDS)

# MINUTES=10 for all targets, or EXECUTIONS=n for each; TARGET="catalog frames" runs these alone.
fuzz: $(STAMP) $(VENV)/.installed-fuzz  ## Fuzz every decoder for MINUTES=10, or EXECUTIONS=n each; TARGET="a b" for some (docs/fuzzing.md).
	@$(BIN)/python -m tests.fuzz run $(if $(EXECUTIONS),--executions $(EXECUTIONS),--minutes $(MINUTES)) \
	    $(if $(TARGET),--target $(TARGET)) $(ARGS)

# Without SEED a fresh one is drawn, and printed. Other options by ARGS, as ARGS="--service my_app:MyService".
MINUTES ?= 10
SEED ?=

chaos: $(STAMP) compiled  ## Real processes under checked load and real faults for MINUTES=10; SEED=n has them again.
	@mkdir -p .chaos; $(BIN)/python -m trimaran.benchmarks chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) \
	    --html .chaos/timeline.html --json .chaos/result.json $(ARGS)

# Rounds of three members, a backup agent, a copy in a store and cold storage, until power was lost LOSSES=30 times.
LOSSES ?= 30

power-backup: $(STAMP) compiled  ## Cut the power LOSSES=30 times while a cluster is backed up and its log leaves for a store.
	@mkdir -p .chaos; $(BIN)/python -m trimaran.benchmarks chaos --modes backed_up --members 3 --rate 400 --power-losses $(LOSSES) \
	    $(if $(SEED),--seed $(SEED)) --json .chaos/power-backup.json $(ARGS)

upgrade-test: $(STAMP) compiled  ## Run the version of tests/upgrade/baseline.txt beside this one: up and back under load.
	@$(SUITE) --workers 0 tests/system/test_mixed_versions.py $(ARGS)

flipped-bits: $(STAMP) compiled  ## Flip a bit in each kind of file of a running cluster; print what happened (a minute).
	@$(BIN)/python -m tests.system.flipped_bits $(ARGS)

format: $(VENV)/.installed-check  ## Format the code and sort its imports.
	@$(BIN)/ruff check --quiet --select I --fix $(SOURCES)
	@$(BIN)/ruff format --quiet $(SOURCES)

RESULTS := benchmarks/results

bench: $(STAMP) compiled  ## Measure targets, growth and profile in about ten minutes, and write docs/performance.md; peers where installed.
	@echo "==> targets"; $(BIN)/python -m trimaran.benchmarks table --json $(RESULTS)/table.json $(ARGS)
	@echo "==> how cost grows"; $(BIN)/python -m trimaran.benchmarks scan --only payload,inflight,members,log \
	    --seconds 1 --json $(RESULTS)/scan.json
	@echo "==> profile"; $(BIN)/python -m trimaran.benchmarks profile --json $(RESULTS)/profile.json \
	    || echo "==> without a new profile" >&2
	@$(BIN)/python -m trimaran.benchmarks performance

# What fails is told, and the rest goes on; 10,000 sessions need `ulimit -n 20000`.
bench-many: $(STAMP) compiled  ## Measure many sessions, groups and a big state in about half an hour, and write docs/performance.md.
	@failed() { echo "==> without new figures of $$1" >&2; }; run() { $(BIN)/python -m trimaran.benchmarks "$$@"; }; \
	echo "==> growth with sessions (4 minutes)"; run scan --only sessions,shared --inflight 1000 --seconds 4 \
	    --json $(RESULTS)/sessions.json || failed sessions; \
	echo "==> opening, rest, fail-over (11 minutes)"; run opening --rounds 3 --json $(RESULTS)/opening.json || failed opening; \
	echo "==> fairness (a minute)"; run fairness --sessions 1000 --json $(RESULTS)/fairness.json || failed fairness; \
	for count in 1000 10000; do \
	    echo "==> profile of $$count sessions (4 minutes at most)"; \
	    run profile --sessions $$count --json $(RESULTS)/profile-$$count.json || failed profile-$$count; \
	done; \
	echo "==> groups (3 minutes)"; run groups --json $(RESULTS)/groups.json || failed groups; \
	echo "==> snapshots of a big state (6 minutes)"; run snapshots --json $(RESULTS)/snapshots.json || failed snapshots; \
	run performance

PEER_PACKAGES := etcd-server linux-perf nghttp2-client nats-server redis-server redis-tools valgrind zookeeper

peers: $(STAMP) $(VENV)/.installed-bench  ## Install what we are compared with, and what benchmarks count and profile with; needs root.
	@echo "==> $(PEER_PACKAGES)"
	@RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PEER_PACKAGES)

bench-guard: $(STAMP)  ## Count the hot paths' instructions (needs valgrind); fail where they grew by over 5 %.
	@$(BIN)/python -m trimaran.benchmarks guard

clean:  ## Remove .venv, caches and build output.
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
