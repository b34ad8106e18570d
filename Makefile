# make lab: environment, then JupyterLab on the first notebook. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV ?= .venv
BIN := $(VENV)/bin
# Candidates for a Python 3.11, tried in this order; `make PYTHON=/path/to/python3.11 env` takes that one.
PYTHON ?= $(firstword $(foreach candidate,python3.11 python3 python $(wildcard $(HOME)/.pyenv/versions/3.11.*/bin/python),\
  $(if $(shell $(candidate) -c 'import sys, venv, ensurepip; print(sys.version_info[:2] == (3, 11) or "")' 2>/dev/null),$(candidate))))
# An extra of pyproject.toml is current when $(VENV) holds its stamp with the checksum of the files that define them all.
SUM := $(shell cat pyproject.toml constraints.txt $$(find etc -type f 2>/dev/null | sort) | cksum | cut -d' ' -f1)
LAB := $(VENV)/.installed-lab-$(SUM)
extra = $(VENV)/.installed-$(1)-$(SUM)
# Plain torch brings gigabytes of CUDA libraries. On a machine without a GPU, give the index of PyTorch's CPU builds
# (named on its installation page): make TORCH_INDEX=... env
TORCH_INDEX ?=
ARGS ?=
# Where an environment forbids compiled modules to be kept, every process would compile the package again
export PYTHONDONTWRITEBYTECODE :=
# Tests, demo and notebooks use real data beside the project.
ifndef DTDG_LAB_DATA
ifneq ($(wildcard ../shared/data/real/index.json),)
export DTDG_LAB_DATA := $(abspath ../shared/data/real)
endif
endif

.PHONY: help env lab demo check test test-full lessons-check soak bench supply docs lint algorithms clean

help:
	@echo 'make lab         environment, then JupyterLab on notebooks/00_live_lab.ipynb'
	@echo 'make demo        a short run with a report and a printed summary'
	@echo 'make check       lint, then the tests nearest to what changed since main (90 seconds)'
	@echo 'make test        lint, then the tests (about ten minutes); ARGS="-k words" selects'
	@echo 'make test-full   every test, with long ones and coverage (over an hour)'
	@echo 'make lessons-check  every lesson in fast mode, with its solutions and what it says (six minutes)'
	@echo 'make soak        an hour of a run that is watched, steered, killed and resumed; ARGS="--minutes 5"'
	@echo 'make bench       the quick part of every benchmark beside stored results; ARGS=--full for the rest'
	@echo 'make supply      licences and known vulnerabilities of the pinned packages'
	@echo 'make docs        the documentation as a site: build/docs/index.html (runs lessons that changed)'
	@echo 'make lint        ruff, mypy, import contracts'
	@echo 'make algorithms  regenerate ALGORITHMS.md from the code'
	@echo 'make env         only the environment of the lab (Python 3.11 in $(VENV)); other targets add what they need'

env: $(LAB)

# etc/ holds settings of JupyterLab: no question about news, nbgrader switched off (docs/instructor.md)
$(LAB):
	@if [ ! -x $(BIN)/python ] || ! $(BIN)/python -c '' 2>/dev/null; then \
	  if [ -z "$(PYTHON)" ]; then \
	    echo 'No Python 3.11 with venv was found. Install one (Debian 12: apt-get install python3.11-venv; or pyenv install 3.11),' >&2; \
	    echo 'or use conda: conda env create -f environment.yml && conda activate dtdg-lab' >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $(PYTHON)"; \
	  "$(PYTHON)" -m venv --clear $(VENV); \
	fi
	@echo 'Installing torch, then the rest of the lab (a few minutes the first time)'
	$(BIN)/python -m pip install --quiet -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $$(grep -E '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[lab]'
	cp -R etc $(VENV)/
	@rm -f $(VENV)/.installed-*
	@touch $@

# Beside the lab, which is installed: only what the extra adds
$(VENV)/.installed-%-$(SUM): $(LAB)
	@echo 'Installing what make needs beside the lab: $*'
	$(BIN)/python -m pip install --quiet -c constraints.txt 'dtdg-lab[$*]'
	@rm -f $(VENV)/.installed-$*-*
	@touch $@

lab: env
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks/00_live_lab.ipynb

demo: env
	$(BIN)/python -m dtdg_lab demo $(ARGS)

# Files of tests in two processes, those that take longest first; ranks and engines are processes of the tests themselves
QUICK := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m 'not slow and not network'
TWO := -n 2 --dist loadfile --no-loadscope-reorder
FOLDERS := $(addprefix tests/,notebooks browser cluster distributed frozen house contracts properties unit)

test: lint
	$(QUICK) $(if $(strip $(ARGS)),$(ARGS),$(TWO) $(FOLDERS))

check: lint
	@files=$$($(BIN)/python tests/changed.py) && $(QUICK) $(TWO) --no-budget $$files

# One process, since benchmarks compare clocks; every case of every product, more hypothesis examples, coverage by file
test-full: lint
	@echo 'Beside the tests of make test, these run (cases by file):'
	@$(BIN)/python -m pytest --collect-only -qq --no-budget -m slow | grep ': ' || true
	$(BIN)/python -m pytest --hypothesis-profile=full --no-budget --cov=dtdg_lab --cov-report=term $(ARGS)

# Every lesson in fast mode, with its solutions, and then what its text says
lessons-check: $(call extra,test)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --no-budget -m 'slow or not slow' tests/notebooks -k 'with_its_solutions or student'

soak: env
	$(BIN)/python -W ignore::ResourceWarning tests/soak.py $(ARGS)

bench: $(call extra,bench)
	$(BIN)/python benchmarks/quick.py $(ARGS)

supply: $(call extra,test)
	$(BIN)/python tests/supply.py

lint: $(call extra,test)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Warnings and broken links fail. NO_MKDOCS_2_WARNING: Material advertises its successor
docs: $(call extra,docs)
	$(BIN)/python docs/hooks.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo 'build/docs/index.html'

algorithms: env
	$(BIN)/python tests/algorithms.py

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
