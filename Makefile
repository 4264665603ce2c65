# Every target sets up what it needs in .venv by itself. PYTHON may name the interpreter (3.10 or later) that .venv is made from.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
PYTEST := $(BIN)/python -m pytest

.PHONY: demo test check lint format bench test-all clean

demo: $(VENV)/.base
	$(BIN)/python examples/matmul.py

test: $(VENV)/.test
	$(PYTEST) -m "not slow"

# Formatter, linter, type checker and the tests that take no time: under two minutes.
check: lint
	$(PYTEST) -m "not slow and not medium"

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.base
	$(BIN)/python benchmarks/run.py

# What `make test` leaves out: the exhaustive sweeps.
test-all: $(VENV)/.test
	$(PYTEST) -m slow

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .hypothesis .ruff_cache .cache

# ---- set-up --------------------------------------------------------------------------------------------------------------

FAILED = { echo "error: pip could not install Tessera's dependencies (above). Without a network, point PIP_FIND_LINKS at a folder" \
	"of wheels or PIP_INDEX_URL at a mirror, and run make again." >&2; exit 1; }

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	{ echo "error: Tessera needs Python 3.10 or later; say which one by: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	{ rm -rf $(VENV); echo "error: $(PYTHON) can't make a virtual environment (on Debian: apt-get install python3-venv)" >&2; exit 1; }

# A stamp per set of dependencies; a larger set counts for the smaller ones.
$(VENV)/.base: pyproject.toml | $(BIN)/python
	@echo "installing Tessera into $(VENV)"
	@$(PIP) -e . || $(FAILED)
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "installing Tessera and what its tests need into $(VENV)"
	@$(PIP) -e '.[test]' || $(FAILED)
	@touch $(VENV)/.base $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing Tessera, what its tests need, and the development tools into $(VENV)"
	@$(PIP) -e '.[test,dev]' || $(FAILED)
	@touch $(VENV)/.base $(VENV)/.test $@
