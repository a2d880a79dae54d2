# The two commands of the README are `make demo` and `make test`; both work from a fresh checkout.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo test docs install lock clean

demo: .venv/core
	$(BIN)/revup demo --out demo

test: .venv/all
	$(BIN)/python -m pytest -n auto $(PYTEST)

# The site works from build/docs/index.html without a server. Warnings are errors.
docs: .venv/all
	$(BIN)/python -m sphinx -q -n -W --keep-going -j auto -b html docs build/docs

install: .venv/all

.venv/bin/python:
	$(PYTHON) -m venv .venv

# Pins come first: with torch in place at its pinned version nothing pulls another build of it.
.venv/core: requirements.lock pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

.venv/all: .venv/core
	$(BIN)/pip check
	touch $@

# Writes the versions installed now as the new pins, after `pip install` of what changed.
lock:
	$(BIN)/pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf .venv demo build
