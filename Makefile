# Every target sets itself up from nothing but Python 3.11 or later and make. `make` alone lists them.

VENV := .venv
PY := $(VENV)/bin/python
LANEWAY := $(VENV)/bin/laneway
# Real MCP servers for the tests, in a folder that git ignores.
SERVERS := tests/servers/node_modules
# Passed on to the command behind demo, bench, test and cover: make test ARGS="-k lanes"
ARGS ?=
# The interpreter to make .venv with; by default setup.sh looks for one.
export PYTHON

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test nightly fuzz crash fight power check bench lint format types imports cover fresh servers lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/run.stamp ## an agent repairs a small project, from recorded model turns
	@$(LANEWAY) demo $(ARGS)

test: $(VENV)/dev.stamp $(SERVERS)/.stamp ## run the tests, but for a few long ones that make check runs
	@$(PY) -m pytest -n auto -m "not long" $(ARGS)

nightly: $(VENV)/dev.stamp ## the lane table against its naive model, 100,000 steps and more
	@$(PY) -m pytest --hypothesis-profile=nightly --timeout=3600 -rP -k "no_fault" \
		tests/test_lane_model.py $(ARGS)

fuzz: $(VENV)/dev.stamp ## random programs and answers against engine, lanes, plans and readers, ROUNDS=20 times as many
	@LANEWAY_ROUNDS=$(ROUNDS) $(PY) -m pytest --timeout=3600 $(FUZZED) $(ARGS)

crash: $(VENV)/dev.stamp ## DEATHS=10000 real deaths of random programs; SEED=1, RESUME=state.json
	@LANEWAY_DEATHS=50 $(PY) -m pytest --timeout=3600 $(CRASHED) $(ARGS)
	@$(PY) -m tests.deaths --deaths $(DEATHS) --seed $(SEED) $(if $(RESUME),--resume $(RESUME))

fight: $(VENV)/dev.stamp ## two processes fight for RUNS=50 runs, for SECONDS=60, frozen at random
	@$(PY) -m tests.deaths.fight --runs $(RUNS) --seconds $(SECONDS) --seed $(SEED)

power: $(VENV)/dev.stamp ## IMAGES=3000 power failures at and between the syncs of a journal; SEED=1
	@$(PY) -m tests.power --images $(IMAGES) --seed $(SEED) $(ARGS)

ROUNDS ?= 20
FUZZED := tests/test_reexecution_random.py tests/test_engine_sagas.py tests/test_nested_drives.py \
	tests/test_lane_controls.py::test_whatever_an_operator_does_every_call_ends_and_no_limit_is_passed \
	tests/test_lane_controls_table.py::test_driven_at_random_nothing_is_lost_and_no_limit_is_passed \
	tests/test_providers_fuzz.py \
	tests/test_plan_tool.py::test_a_dag_in_a_plan_call_runs_as_the_same_dag_of_a_host
DEATHS ?= 10000
IMAGES ?= 3000
SEED ?= 1
RUNS ?= 50
SECONDS ?= 60
# What the campaign cannot: every commit of one turn, and deaths in virtual time.
CRASHED := tests/test_crash.py tests/test_engine_deaths.py \
	tests/test_demo.py::test_a_death_at_any_commit_loses_nothing_and_repeats_nothing \
	tests/test_plan_tool.py::test_a_plan_survives_the_death_of_its_process_at_any_commit

check: lint types imports fresh cover ## every gate: lint, types, imports, a fresh copy, tests with coverage

bench: $(VENV)/run.stamp ## measure the engine against a bare gather and a raw journal
	@$(LANEWAY) bench $(ARGS)

lint: $(VENV)/dev.stamp ## ruff: the rules and the format
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check

format: $(VENV)/dev.stamp ## let ruff mend what it can
	@$(PY) -m ruff check --fix-only
	@$(PY) -m ruff format

types: $(VENV)/dev.stamp ## mypy and pyright, both strict
	@$(PY) -m mypy
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright

imports: $(VENV)/dev.stamp ## import-linter: imports point one way
	@$(VENV)/bin/lint-imports --no-logo

cover: $(VENV)/dev.stamp $(SERVERS)/.stamp ## run the tests, and hold branch coverage at 95 % or more
	@$(PY) -m pytest -n auto --cov --cov-report=term $(ARGS)

# What git would commit now is laid in an empty folder, where the README's first command must pass.
fresh: ## run the demo in a fresh copy of the checkout
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && export GIT_INDEX_FILE="$$copy/index" && \
	{ cp "$$(env -u GIT_INDEX_FILE git rev-parse --git-path index)" "$$copy/index" 2>/dev/null || true; } && \
	git add --all && git checkout-index --all --prefix="$$copy/checkout/" && unset GIT_INDEX_FILE && \
	echo "make demo, in a fresh copy" && $(MAKE) --no-print-directory -C "$$copy/checkout" demo ARGS=

servers: ## install the real MCP servers that tests start; needs npm
	@command -v npm >/dev/null || { echo "There is no npm here; it comes with Node.js." >&2; exit 1; }
	@cd $(dir $(SERVERS)) && $(NPM_INSTALL)
	@touch $(SERVERS)/.stamp

# Without a lock file and without scripts of the packages; a Node.js that is too old is refused.
NPM_INSTALL := npm install --no-package-lock --omit-lockfile-registry-resolved --ignore-scripts \
	--engine-strict --no-audit --no-fund --no-update-notifier --prefer-offline --loglevel=error

# Tried once where there is npm, and never a reason to fail: what needs the servers is then skipped.
$(SERVERS)/.stamp: $(dir $(SERVERS))package.json
	@if command -v npm >/dev/null; then \
		echo "Installing the MCP servers of $< for the tests" >&2; \
		(cd $(<D) && $(NPM_INSTALL) --fetch-retries=1 --fetch-retry-mintimeout=1000 \
			--fetch-timeout=10000 >/dev/null 2>&1) || \
		echo "They could not be installed; their tests are skipped. To try again: make servers" >&2; \
		mkdir -p $(@D) && touch $@; \
	fi

lock: $(VENV)/run.stamp ## compile requirements/*.in, with the newest versions
	@test -d $(VENV)/lock || $(PY) -m venv $(VENV)/lock
	@$(VENV)/lock/bin/python -m pip install -qq uv
	@$(LOCK) requirements/run.in -o requirements/run.txt
	@$(LOCK) requirements/dev.in -c requirements/run.txt -o requirements/dev.txt

# One version of each package for every Python and platform; no index's address in the files.
LOCK := $(VENV)/lock/bin/uv --no-config pip compile --quiet --upgrade --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links

clean: ## remove .venv, caches and what was built
	@rm -rf $(VENV) $(SERVERS) dist build htmlcov .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The folders are installed as links, so only a change of the requirements or of the metadata counts.
$(VENV)/%.stamp: requirements/%.txt requirements/setup.sh pyproject.toml
	@sh requirements/setup.sh $*
	@touch $@
