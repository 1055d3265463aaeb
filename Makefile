# Sojourn's workshop: every target sets up what it needs; run `make` alone for the list.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.sojourn-setup
# Files of tests that run at once. Most of them wait, for servers and for kills; all but one may have a Spark, of 1–2 GB.
JOBS ?= 4
# Some hundreds of Pythons start in a run of the tests, a dozen in the demo: what one has compiled the next shall find,
# even where the environment says otherwise, as those of containers like to.
unexport PYTHONDONTWRITEBYTECODE
LOCKS := requirements-build.lock requirements.lock

.PHONY: help setup jars archive client lab lock site demo test check format docs images fuzz clean

help: ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## the virtual environment, from the lock files; .venv/bin/sojourn is the command

# Plain venv and pip, so that the machine's own pip configuration (index, proxy, certificates) holds.
$(STAMP): $(LOCKS) pyproject.toml scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup $(VENV)
	@touch $@

jars: $(STAMP) ## fetch Spark's jars into the cache now rather than at the first start
	@$(BIN)/python -m spark_analytics.runtime

demo: $(STAMP) jars ## the whole system on this machine; ARGS="--headless --duration 120"
	@$(BIN)/sojourn demo $(ARGS)

test: $(STAMP) jars ## the tests; ARGS="-k words" chooses, ARGS="--deep" tries all, JOBS=1 runs one file at a time
	@scripts/servers
	@scripts/test $(JOBS) $(ARGS)

check: $(STAMP) ## formatter, linter, strict types, import layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(STAMP) ## rewrite the sources as `make check` wants them
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(STAMP) ## regenerate the reference pages from what is declared
	@$(BIN)/python -m lake.views.document > docs/views.md
	@$(BIN)/python -m lake.metrics_page > docs/metrics.md
	@$(BIN)/python -m alerts.rules.document > docs/rules.md
	@$(BIN)/python -m alerts.laws.document > docs/laws.md
	@$(BIN)/python -m tests.support.facts > docs/brokers/README.md
	@$(BIN)/python -m collectors.receive.document
	@$(BIN)/python -m lab.forecasts > docs/forecasts.md
	@$(BIN)/python -m sojourn.reference cli > docs/cli.md
	@$(BIN)/python -m sojourn.reference settings > docs/settings.md

images: $(STAMP) jars ## take the pictures of docs/images anew, in a browser on a running demo and on a golden lake
	@scripts/servers
	@SOJOURN_SCREENSHOTS="$(CURDIR)/docs/images" $(BIN)/python -m pytest -q --deep tests/dashboard/test_browser.py tests/e2e/test_demo.py

site: $(STAMP) ## the documentation as web pages, in site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file deploy/site/mkdocs.yml --site-dir "$(CURDIR)/site"

archive: $(STAMP) jars ## make the image of Java's classes that spares each start of Spark some seconds; a minute, once
	@$(BIN)/python -m spark_analytics.runtime.training

client: $(STAMP) ## build the client's own package, sojourn-client, into dist/
	@scripts/client $(BIN)/python dist

lab: $(STAMP) ## run the lab's scenarios and write docs/lab; some minutes
	@$(BIN)/python -m lab.document docs/lab

lock: $(STAMP) ## resolve pyproject.toml anew into the lock files
	@scripts/lock $(BIN)/uv

bench-%: $(STAMP) ## a benchmark of benchmarks/: one JSON object a line
	@test -f benchmarks/$*.py || { echo "no benchmark $*: benchmarks/$*.py is not there" >&2; exit 2; }
	@$(BIN)/python benchmarks/$*.py $(ARGS)

fuzz: $(STAMP) jars ## hostile statements and requests at the real entry points; ARGS="--statements 100000 --requests 100000 --seed 1"
	@$(BIN)/python -m tests.security.fuzz $(ARGS)

clean: ## remove the virtual environment and the tools' caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info build dist
