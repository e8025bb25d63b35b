# Works in a fresh clone with only Python (>= 3.10), gcc and make: `make demo`, `make test`.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest

# pytest exits with 5 when a selection holds no test; that is no failure.
no_tests_is_fine = || test $$? -eq 5

.PHONY: demo test test-long test-full test-gpu test-pythons zoo hostile property lint wheel resolutions bench pictures docs docs-test clean

demo: $(STAMP)
	$(BIN)/graphdbg demo

test: $(STAMP)
	$(PYTEST) -n $(WORKERS) --dist worksteal --durations=20 -m "not long and not slow and not gpu" $(ARGS) $(no_tests_is_fine)

# The rest of what each change must pass: whole commands and programs from end to end.
test-long: $(STAMP)
	$(PYTEST) -n $(WORKERS) --dist worksteal --durations=20 -m "long and not slow and not gpu" $(ARGS) $(no_tests_is_fine)

test-full: $(STAMP)
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not gpu" $(ARGS) $(no_tests_is_fine)

test-gpu: $(STAMP)
	$(PYTEST) -n 0 -m gpu $(ARGS) $(no_tests_is_fine)

test-pythons:
	$(PYTHON) -m tests.house.pythons $(ARGS)

# Healthy programs, of which nothing may be said to fail; resumable.
zoo: $(STAMP)
	$(BIN)/python -m tests.zoo.zoo --jobs $(WORKERS) $(ARGS)

# Damaged dumps through all reading commands and a replay, then recordings and minifications that are killed; goes on where the
# seed was left.
MINUTES ?= 30
SEED ?= 1
hostile: $(STAMP)
	$(BIN)/python -m tests.hostile.fuzz --minutes $(MINUTES) --seed $(SEED) --jobs $(WORKERS) $(ARGS)
	$(BIN)/python -m tests.hostile.kills --minutes $$(( ($(MINUTES) + 9) / 10 )) --seed $(SEED) --jobs $(WORKERS) \
	  --kills-dump 1000 --kills-minify 200
	$(BIN)/python -m tests.hostile.terminals --minutes $$(( ($(MINUTES) + 2) / 3 )) --closings 50 --seed $(SEED)

# Random small graphs with planted faults: what is verified inside fails in its repro, and passes without the fault; resumable.
property: $(STAMP)
	$(BIN)/python -m tests.minifier.report.property_run --examples 500 --minutes 60 --jobs $(WORKERS) $(ARGS)

# The wheel and the sdist, and the wheel without extras in an environment of its own beside torch alone.
wheel: $(STAMP)
	rm -rf .cache/dist .cache/plain
	$(BIN)/python -m build --quiet --outdir .cache/dist .
	$(BIN)/python -m twine check --strict .cache/dist/*
	$(PYTHON) -m venv .cache/plain
	.cache/plain/bin/python -m pip install --quiet torch==2.13.0 .cache/dist/*.whl
	$(BIN)/python -m tests.house.five_nodes --python .cache/plain/bin/python

resolutions: $(STAMP)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python -m tests.house.resolutions

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/pyright

bench: $(STAMP)
	@set -e; for script in tests/bench/bench_*.py; do \
	  echo "== $$script"; $(BIN)/python -m tests.bench.$$(basename $$script .py) $(ARGS); \
	done

# The site, into .cache/site: it opens from the folder, without a server.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Every code block of README and the site, run and compared with what the page shows.
docs-test: $(STAMP)
	$(PYTEST) -n $(WORKERS) --dist load --maxschedchunk 1 --durations=20 -m "" $(ARGS) tests/docs

# All pictures of README and the site: screens, a moving picture of a real session, the benchmark.
pictures: $(STAMP)
	$(BIN)/python -m tests.tui.pictures docs/pictures
	$(BIN)/python -m tests.docs.moving_picture docs/pictures/moving.svg
	$(BIN)/python -m tests.bench.bench_picture

.venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt _version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "graphdbg needs Python 3.10 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .cache .pytest_cache .ruff_cache .hypothesis build dist
