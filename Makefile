# recalld: every command of the project. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GOBIN := $(CURDIR)/.bin

.DEFAULT_GOAL := help
.PHONY: help demo test check fmt gen lock bench grpcurl clean

help: ## Lists the commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .stamps/server ## Installs the server and shows the main job: write, ask, see why each answer ranks.
	@$(BIN)/recalld demo

test: .stamps/dev .stamps/grpcurl ## Installs the test tools and runs every test.
	$(BIN)/python -m pytest

check: .stamps/dev ## Format, lint, types, layers, the wire contract, and that the stubs are up to date.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	@tools/check_breaking.sh $(BIN)/buf
	@tools/check_stubs.sh $(BIN)

fmt: .stamps/dev ## Formats the code and the contract.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/buf format --write

gen: .stamps/dev ## Makes the stubs anew from proto/.
	tools/generate_stubs.sh $(BIN) pyclient

lock: .stamps/dev ## Pins the dependencies anew, with hashes.
	$(BIN)/uv pip compile -q pyproject.toml requirements/build.in --all-extras -o requirements/dev.lock $(LOCK)
	$(BIN)/uv pip compile -q pyproject.toml requirements/build.in --extra server -c requirements/dev.lock -o requirements/server.lock $(LOCK)

LOCK := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

bench: .stamps/dev ## Runs the benchmarks that need no data set; see bench/README.md for the others.
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/bulk.py
	$(BIN)/python bench/library.py
	$(BIN)/python bench/lag.py

grpcurl: .stamps/grpcurl ## Builds grpcurl into .bin/ (needs Go).

clean: ## Removes what the other commands made, but no data.
	rm -rf $(VENV) .stamps .bin build dist .pytest_cache .ruff_cache .hypothesis

# --- set-up ----------------------------------------------------------------------------------------------------------

$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit("recalld needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

# The lock pins everything with hashes; the project itself is then built without fetching anything more.
.stamps/server: requirements/server.lock pyproject.toml | $(VENV)
	@echo "installing the server into $(VENV); this takes a minute or two the first time"
	$(BIN)/pip install --disable-pip-version-check -q --require-hashes -r requirements/server.lock
	$(BIN)/pip install --disable-pip-version-check -q --no-build-isolation --no-deps -e .
	@mkdir -p .stamps && touch $@

.stamps/dev: requirements/dev.lock pyproject.toml | $(VENV)
	@echo "installing the server and the test tools into $(VENV); this takes a minute or two the first time"
	$(BIN)/pip install --disable-pip-version-check -q --require-hashes -r requirements/dev.lock
	$(BIN)/pip install --disable-pip-version-check -q --no-build-isolation --no-deps -e .
	@$(BIN)/pyright --version >/dev/null  # fetches the type checker once, so that `make check` works offline
	@mkdir -p .stamps && touch $@ .stamps/server

# grpcurl is built from source where there is Go; its tests say that they are skipped where there is none.
.stamps/grpcurl:
	@mkdir -p .stamps
	@if command -v go >/dev/null 2>&1; then \
		GOBIN=$(GOBIN) GOFLAGS=-mod=mod go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3 && touch $@; \
	else echo "no Go here: the grpcurl tests are skipped"; fi
