# Each target sets up what it needs: a virtual environment in .venv, and nothing outside of this directory.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.installed
KERNELS := $(VENV)/.kernels
RUNS := 20000
DATA := ../shared/data
NAMES :=
# Where the shapes in signatures are enforced: it takes these tests three times as long, and they reach every model.
SHAPES := $(addprefix tests/,contracts decode equations kernels layers metrics models)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo test browser slow golden golden-renew fuzz check kernels bench docs site gallery models wheel clean

setup: $(STAMPS)-demo $(KERNELS)  ## install Seqlab into .venv
	@echo 'Seqlab is in $(BIN)/seqlab. Try: $(BIN)/seqlab --help'

demo: $(STAMPS)-demo $(KERNELS)  ## train a model on dates in 48 languages, and try it on a page beside the shipped ones
	$(BIN)/seqlab demo

test: $(STAMPS)-test  ## the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(addprefix --ignore=,$(SHAPES))
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(SHAPES) --jaxtyping-packages=seqlab,beartype.beartype

browser: $(STAMPS)-test  ## the page in a real chromium; skipped where there is none
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m browser

slow: $(STAMPS)-test  ## the tests that train for minutes
	$(BIN)/python -m pytest -m slow --timeout=3600

golden: $(STAMPS)-test  ## all outputs beside those of the tagged commit, bit for bit; of some SECTIONS only, if these are given
	$(BIN)/python tests/golden/against_tag.py $(if $(SECTIONS),--only $(SECTIONS))

golden-renew: $(STAMPS)-test  ## write the outputs that the fast tests expect anew; each change needs its reason
	$(BIN)/python tests/golden/renew.py

fuzz: $(STAMPS)-fuzz  ## a million damaged files, then each parser's own fuzzer for RUNS inputs
	SEQLAB_MUTATIONS=1000000 OMP_NUM_THREADS=1 TMPDIR=$$(test -d /dev/shm && echo /dev/shm || echo /tmp) \
		$(BIN)/python -m pytest -o addopts=--import-mode=importlib tests/test_hostile.py -n 2 --timeout=14400
	for name in $$($(BIN)/python -m tests.fuzz); do $(BIN)/python -m tests.fuzz $$name -runs=$(RUNS) || exit 1; done

check: $(STAMPS)-check  ## style, types, import direction
	$(BIN)/ruff check seqlab seqlab_claims experiments tests docs
	$(BIN)/ruff format --check seqlab seqlab_claims experiments tests docs
	$(BIN)/mypy
	$(BIN)/lint-imports

kernels: $(STAMPS)-demo  ## compile the native kernels, where there is a C++ compiler: faster, never needed
	$(BIN)/seqlab kernels build

bench:  ## race against other libraries, in an environment that has them
	$(MAKE) VENV=.venv-bench .venv-bench/.installed-bench
	-.venv-bench/bin/seqlab kernels build
	.venv-bench/bin/python -m experiments.bench

docs: $(STAMPS)-demo  ## the pages that are made of the code
	$(BIN)/python docs/make.py

site: $(STAMPS)-site docs  ## the documentation as a site with search, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'The site is in site/. To search it: $(BIN)/python -m http.server --directory site'

gallery: $(STAMPS)-demo  ## every view on every kind of model, into docs/gallery
	$(BIN)/python experiments/gallery.py

models: $(STAMPS)-demo  ## train the models that come with the package, all or those of NAMES, from the data in DATA
	$(BIN)/python experiments/shipped_models.py $(DATA) $(NAMES)

wheel: $(STAMPS)-demo  ## a wheel in dist/
	$(BIN)/pip wheel --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) .venv-bench build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# Compiled again only when their sources change. Without a compiler all works through torch, so a failure is no error.
$(KERNELS): $(STAMPS)-demo $(wildcard seqlab/kernels/native/*)
	test "$$SEQLAB_NATIVE" = 0 || $(BIN)/seqlab kernels build || true
	touch $@

# One stamp for each extra: installed again only when the requirements change.
$(STAMPS)-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@
