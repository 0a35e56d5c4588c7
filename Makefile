# Every target sets itself up from nothing but Python 3.11 or later and make. `make` alone lists them.

VENV := .venv
PY := $(VENV)/bin/python
LANEWAY := $(VENV)/bin/laneway
# Passed on to the command behind demo, bench, test and cover: make test ARGS="-k lanes"
ARGS ?=
# The interpreter to make .venv with; by default setup.sh looks for one.
export PYTHON

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check bench lint format types imports cover fresh lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/run.stamp ## an agent repairs a small project, from recorded model turns
	@$(LANEWAY) demo $(ARGS)

test: $(VENV)/dev.stamp ## run the tests
	@$(PY) -m pytest $(ARGS)

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

cover: $(VENV)/dev.stamp ## run the tests, and hold branch coverage at 95 % or more
	@$(PY) -m pytest --cov --cov-report=term $(ARGS)

# What git would commit now is laid in an empty folder, where the README's first command must pass.
fresh: ## run the demo in a fresh copy of the checkout
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && export GIT_INDEX_FILE="$$copy/index" && \
	{ cp "$$(env -u GIT_INDEX_FILE git rev-parse --git-path index)" "$$copy/index" 2>/dev/null || true; } && \
	git add --all && git checkout-index --all --prefix="$$copy/checkout/" && unset GIT_INDEX_FILE && \
	echo "make demo, in a fresh copy" && $(MAKE) --no-print-directory -C "$$copy/checkout" demo ARGS=

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
	@rm -rf $(VENV) dist build htmlcov .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The folders are installed as links, so only a change of the requirements or of the metadata counts.
$(VENV)/%.stamp: requirements/%.txt requirements/setup.sh pyproject.toml
	@sh requirements/setup.sh $*
	@touch $@
