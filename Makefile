# make help lists what there is. Everything but setup needs only what setup installs, and two
# benchmarks: their peers come from npm and PyPI when they are run.
.DEFAULT_GOAL := help
.PHONY: help setup install demo docs docs-check test lint bench image clean

# Exported and not quoted into a command: a file's name may hold anything.
export INPUT

export PG_CONFIG ?= $(firstword $(wildcard /usr/lib/postgresql/15/bin/pg_config) pg_config)

BIN := .venv/bin

help:
	@echo 'make setup    install what is missing: Debian packages (as root) and .venv'
	@echo 'make install  build the extension and install it into PostgreSQL (as root)'
	@echo 'make demo     append a package log, drain it, break it, drain it again (INPUT=file)'
	@echo 'make docs     write the generated pages of docs/reference'
	@echo 'make test     lint, pgTAP and pytest, and the docs are up to date'
	@echo 'make lint     ruff, mypy, SQL that parses, and pgspot over it; Dockerfile, compose.yaml'
	@echo 'make image    build the image without a registry, try it, and remove it (as root)'
	@echo 'make bench    run the benchmarks in bench/; make bench-signer runs one'
	@echo 'make clean    remove what was built here; installed files and data stay'

setup:
	@scripts/setup-packages
	@scripts/setup-venv

install: setup
	@scripts/install-extension

demo: install
	@$(BIN)/python demo/demo.py

docs: install
	@$(BIN)/python -m docs.generator

docs-check: install
	@$(BIN)/python -m docs.generator --check

test: install lint docs-check
	@scripts/test-sql
	@$(BIN)/python -m pytest tests/py --numprocesses=3 --dist=worksteal

lint: setup
	@$(MAKE) --no-print-directory -s -C extension
	@scripts/lint

bench: install
	@[ -n "$(wildcard bench/bench_*.py)" ] || echo 'There are no benchmarks yet.'
	@status=0; for bench in $(wildcard bench/bench_*.py); do \
	  echo "== $$bench"; $(BIN)/python $$bench || status=1; done; exit $$status

bench-%: install
	@$(BIN)/python bench/bench_$(subst -,_,$*).py

image:
	@scripts/try-image

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	$(MAKE) -C extension clean
