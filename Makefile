# make demo       sample real models with the plugin off and on, compare, save a plot: 1 minute
# make check      lint, types and some fast tests: under 2 minutes
# make test       lint, types and a part of the test suite (what CI runs): 12 minutes on two cores
# make test-install  the wheel in fresh environments, which run the README and the pages, and Bambi and other libraries
#                 (PYTHON=/path/to/python3.12 for their Python): 20 minutes
# make test-all   the whole suite: fuzzing, the model suite, every case study: hours
# make test-upstream  the tests of PyTensor, PyMC and nutpie without the plugin and with it (TESTS=pymc for some, UPSTREAM=folder for checkouts): 1 hour
# make test-versions  some tests with the oldest and the newest versions of what we build on (NAME=oldest for one): 30 minutes
# make fuzz       random models off against on (N=100 how many, SEED=0 of the first): 3 to 5 seconds a model
# make fuzz-graphs  random graphs off against on, failures as the least program (N=1000 how many, SEED=0 of the first): a quarter of a second each
# make test-bounds  the tests of kernels, which look before each load and store whether it is inside of its buffer: 1 hour
# make bench      the benchmark tables, their JSON and plot (MODEL=radon for one, QUICK=1 for a fast look), then the user's wait: 2 hours
# make wait       the user's wait alone, with the table of the README and its plot (ALL=1 for the first draw of each model too, 30 minutes more): 25 minutes
# make canaries   the table of rules that fire, by model (MODEL=zoo/poisson for one): 5 minutes
# make docs       the documentation as HTML, which runs the tutorial: 2 minutes
# make notebooks  runs the case studies and writes them with their output, which is committed (NAME=radon for one): 20 minutes
# make .venv      only the environment: 1 to 5 minutes
#
# With RECORD=1, test-all, test-upstream, fuzz and fuzz-graphs write their counts into docs/reliability.md.
# A suitable Python is looked for by name; `make PYTHON=/path/to/python3.13 test` names one.

SHELL := /bin/sh
# Only relative paths below: make cannot hold a path with a space in a target.
PY := .venv/bin/python
RUN := PYTHONPATH="$$PWD" $(PY)
WORKERS ?= 2
# A worker takes whole files, in the order of their names: files with few and long tests would else be the last ones.
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
BOUNDS := $(addprefix tests/,kernel rewrites callbacks fuzz test_zoo.py test_workflow.py test_lkj_covered.py)
CHECK := $(addprefix tests/,test_architecture.py test_project_files.py test_docs.py test_config.py \
  rewrites/test_gaussian_rows.py rewrites/test_compact_rows.py kernel/test_passes.py kernel/test_op.py)

.PHONY: .venv demo check test test-install test-all test-upstream test-versions fuzz fuzz-graphs test-bounds bench wait canaries docs notebooks lint clean

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
	@echo "Installing about 150 packages, 1 GB, which takes 1 to 5 minutes, once."
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --editable ".[test,bench,case-studies,docs]"
	@touch .venv/.installed

demo: .venv
	$(RUN) case_studies/demo.py

lint: .venv
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# What fails most often and needs seconds: architecture, registration, documents, and two rewrites and the kernel from end to end.
check: lint
	$(RUN) -m pytest -q -m "not slow" -k "not blocks_run" $(CHECK)

test: lint
	$(RUN) -m pytest $(PARALLEL) -m "not slow"

test-install: .venv
	INSTALL_PYTHON="$(PYTHON)" $(RUN) -m pytest tests/test_bare_install.py

test-all: lint
	$(RUN) -m pytest $(PARALLEL) --hypothesis-profile=fuzz $(if $(RECORD),--junitxml=build/tests.xml)
	$(if $(RECORD),$(RUN) -m tests.counts build/tests.xml)

test-upstream: .venv
	$(RUN) -m tests.upstream $(TESTS) $(if $(RECORD),--record)

test-versions: .venv
	$(RUN) -m tests.versions $(NAME)

fuzz: .venv
	$(RUN) -m tests.fuzz $(or $(N),100) $(or $(SEED),0) $(if $(RECORD),--record)

fuzz-graphs: .venv
	$(RUN) -m tests.fuzz $(or $(N),1000) $(or $(SEED),0) --graphs $(if $(RECORD),--record)

# Kernels, rewrites, models and random graphs, with code that checks each load and store against its buffer.
test-bounds: .venv
	PYMC_FASTLOGP_CHECK_BOUNDS=1 $(RUN) -m pytest $(PARALLEL) -m "not slow" $(BOUNDS)

bench: .venv
	$(RUN) -m benchmarks $(if $(MODEL),--model $(MODEL)) $(if $(QUICK),--quick)
	$(if $(MODEL)$(QUICK),,$(RUN) -m benchmarks.first_draw)
	$(if $(MODEL)$(QUICK),,$(RUN) -m benchmarks.to_first_draw)

wait: .venv
	$(RUN) -m benchmarks.first_draw
	$(if $(ALL),$(RUN) -m benchmarks.to_first_draw)

canaries: .venv
	$(RUN) -m tests.canaries $(MODEL)

docs: .venv
	$(RUN) -m sphinx -W -b html docs docs/_build/html

# Bambi is no part of the environment of tests.
notebooks: .venv
	$(PY) -m pip install --quiet --editable ".[case-studies,bambi]"
	$(RUN) -m case_studies $(NAME)

clean:
	rm -rf .venv docs/_build docs/case_studies .pytest_cache .mypy_cache .ruff_cache
