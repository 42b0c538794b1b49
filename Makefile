# `make help` lists the targets. Each may be run again at any time; each makes what it needs, the environment included.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

# tests and recipes compute with small numbers: more threads only get in each other's way
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-slow test-ranks test-deepspeed test-browser check style types layers format regenerate \
	schema tiny-math step-loop gpu-check bench wheel clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

setup: $(READY)  ## create .venv and install the package with what development needs

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
		echo "make: there is no '$(PYTHON)' here. Install Python 3.11 or later, or say which: make setup PYTHON=/path/to/python"; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: prefopt needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
		echo "      Say which to use: make setup PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
		rm -rf $(VENV); \
		echo "make: $(PYTHON) cannot create environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "make: installing into $(VENV), a few minutes the first time"
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

quickstart: setup  ## train the small demonstration model on a CPU, then look at runs/
	$(BIN)/prefopt train recipes/quickstart.yaml --overwrite

test: setup  ## fast tests, those with two processes included
	$(BIN)/pytest -n $(WORKERS) -m "not slow and not gpu"

test-slow: setup  ## tests that take minutes
	$(BIN)/pytest -m "slow and not gpu"

test-ranks: setup  ## only tests that start two processes
	$(BIN)/pytest -m "ranks and not slow and not gpu"

test-deepspeed: setup  ## install DeepSpeed (Linux, needs a C++ compiler) and run what needs it
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[deepspeed]'
	DS_ACCELERATOR=cpu $(BIN)/pytest -m "not gpu" -k zero tests/ranks

test-browser: setup  ## the report in a real browser; Debian: apt-get install chromium
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[browser]'
	$(BIN)/pytest -m browser tests/report

check: style types layers test  ## everything a change must pass

style: setup  ## format and lint, nothing is changed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup  ## static types
	$(BIN)/mypy

layers: setup  ## imports point down only
	$(BIN)/pytest -q tests/test_layers.py tests/test_imports.py

format: setup  ## format and mend what lint can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

regenerate: setup  ## generated files: the table of losses, the list of training arguments
	$(BIN)/python -m prefopt.config.generate
	$(BIN)/prefopt losses --markdown --into recipes/README.md
	$(BIN)/prefopt losses --markdown --into README.md

schema: setup  ## the JSON schema of recipes, for editors
	@mkdir -p build
	$(BIN)/prefopt schema > build/recipe.schema.json
	@echo build/recipe.schema.json

tiny-math: setup  ## build the demonstration model and its pairs again
	$(BIN)/python recipes/demo/build.py

step-loop: setup  ## the demonstration model trains on its own step pairs: Step-DPO, SCDPO, RISE; 10 to 20 minutes
	$(BIN)/python recipes/studies/step_loop/loop.py

gpu-check:  ## on a CUDA machine: layouts on real kernels, speed and memory against TRL; builds nothing
	PYTHONPATH=. $${PYTHON:-python} benchmarks/gpu_check.py

bench: setup  ## every script of benchmarks/
	@set -e; found=; for script in benchmarks/*.py; do \
		test -e "$$script" || continue; found=yes; echo "== $$script"; $(BIN)/python "$$script"; done; \
	test -n "$$found" || echo "There is nothing to run in benchmarks/."

wheel: setup  ## the distribution, in dist/
	$(BIN)/python -m pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist .

clean:  ## remove what checks and builds leave behind; keeps .venv and runs/
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find prefopt data_tools tests recipes -name __pycache__ -type d -prune -exec rm -rf {} +
