# make demo       sample real models with the plugin off and on, compare, save a plot
# make test       lint, types and the test suite (what CI runs)
# make test-all   the slow suites too: fuzzing, the model suite, every case study
# make bench      the benchmark table and the user's wait, their JSON and plots (MODEL=radon for one, QUICK=1 for a fast look)
# make canaries   the table of rules that fire, by model (MODEL=zoo/poisson for one)
# make docs       the documentation as HTML
# make .venv      only the environment
#
# A suitable Python is looked for by name; `make PYTHON=/path/to/python3.13 test` names one.

SHELL := /bin/sh
# Only relative paths below: make cannot hold a path with a space in a target.
PY := .venv/bin/python
RUN := PYTHONPATH="$$PWD" $(PY)
WORKERS ?= 2

.PHONY: .venv demo test test-all bench canaries docs lint clean

.venv: .venv/.installed

.venv/.installed: pyproject.toml
	@set -e; \
	for candidate in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.14 python3 python); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then \
	    found="$$candidate"; break; \
	  fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "pymc_fastlogp needs Python 3.12 or newer, and none was found. Get one with 'pyenv install 3.13'," \
	       "'uv python install 3.13' or your system's package manager, or name one: make PYTHON=/path/to/python3.13" >&2; \
	  exit 1; \
	fi; \
	echo "Making .venv with $$("$$found" --version)"; \
	"$$found" -m venv --clear .venv
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --editable ".[test,bench,case-studies,docs]"
	@touch .venv/.installed

demo: .venv
	$(RUN) case_studies/demo.py

lint: .venv
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

test: lint
	$(RUN) -m pytest -n $(WORKERS) --dist loadfile -m "not slow"

test-all: lint
	$(RUN) -m pytest -n $(WORKERS) --dist loadfile --hypothesis-profile=fuzz

bench: .venv
	$(RUN) -m benchmarks $(if $(MODEL),--model $(MODEL)) $(if $(QUICK),--quick)
	$(if $(MODEL)$(QUICK),,$(RUN) -m benchmarks.first_draw)

canaries: .venv
	$(RUN) -m tests.canaries $(MODEL)

docs: .venv
	$(RUN) -m sphinx -W -b html docs docs/_build/html

clean:
	rm -rf .venv docs/_build case_studies/_executed .pytest_cache .mypy_cache .ruff_cache
