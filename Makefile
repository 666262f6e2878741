# Every target does its own set-up: a bare checkout, Python 3.11+ and Java 17+ are enough.
# The system's Python where it is new enough and can make environments: distributions build theirs with profile-guided
# optimisation, which pyenv by default does not, and without it every test takes half as long again.
PYTHON ?= $(shell /usr/bin/python3 -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo /usr/bin/python3 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Where it is set, as in many containers, each of the many processes that tests start compiles all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

# Have glibc ask for huge pages for the memory of Python and Java: on a virtual machine, where a TLB miss costs twice as
# much, a seed of the simulator takes a third less CPU time.
ifeq ($(shell uname),Linux)
test lab quick: export PYTHONMALLOC := malloc
classes test lab soak quick: export GLIBC_TUNABLES := glibc.malloc.hugetlb=1
endif

.DEFAULT_GOAL := help
.PHONY: help setup java classes packages demo test lab quick durations test-oldest versions check bench soak integration pictures kafka-image docs try release clean
OLDEST := .venv-oldest

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("sparkonce needs Python 3.11 or newer, found " + sys.version.split()[0] + ". Point PYTHON at one: make PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	@echo "Setting up $(VENV) with $(PYTHON) (a minute or two, once)"
	@# One that is there stays: another Python in its place would find packages that were built for the first.
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# PySpark finds the formats by listing sys.path, so the checkout must be on it: editable_mode=compat puts it there.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		--use-pep517 --config-settings editable_mode=compat -e '.[demo,test,bench,docs]'
	@touch $@

setup: $(STAMP) ## Install everything into .venv

java: $(STAMP)
	@$(BIN)/python -m sparkonce.connectors.runtime.java_check

classes: java
	@$(BIN)/python -m lab.class_archive

demo: java ## Flights through broker, Spark and Delta while the job is killed again and again (DIRECT=1: without the JVM; WATCH=1: as live pages)
	@$(BIN)/python -m sparkonce.jobs.demo $(if $(DIRECT),--direct) $(if $(WATCH),--watch)

# Install a package of Debian's for the tests, where it is missing and root runs make: $(call install,package,command that finds it).
define install
@{ $(2); } >/dev/null 2>&1 || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
	echo "Installing $(1) for the tests (once)"; \
	{ timeout 300 apt-get install -y -qq --no-install-recommends $(1) || { timeout 120 apt-get update -qq \
	&& timeout 600 apt-get install -y -qq --no-install-recommends $(1); }; } >/dev/null 2>&1 \
	|| echo "$(1) cannot be installed: tests that need it are skipped"; }
endef

# They start nothing by themselves, except where systemd runs.
packages:
	$(call install,chromium,test -n "$$CHROMIUM" || command -v chromium || command -v chromium-browser || command -v google-chrome)
	$(call install,zookeeper,test -f /usr/share/java/zookeeper.jar)
	$(call install,prometheus,command -v promtool)

# Three processes on two cores: one waits for the crash matrix, which is in processes of its own. A test whose time is
# up is interrupted by a signal; one that compiled code keeps from seeing it ends its process, and is named.
# Spark waits 10 s for a Python worker to begin, which no setting changes: on a loaded machine a test gets a second try.
PYTEST = $(BIN)/python -m pytest -n 3 --reruns 1 --only-rerun "Python worker failed to connect back" \
	-o faulthandler_timeout=2400 -o faulthandler_exit_on_timeout=true

test: classes packages ## What a change to the product can break (12 minutes on two cores)
	@$(PYTEST) -m "not soak and not lab" --ignore tests/lab

lab: classes packages ## The laboratory's own tests, planted bugs, slow tutorials, larger matrices (an hour)
	@$(PYTEST) -m "lab"

quick: java ## The tests nearest to what changed, in two minutes (SINCE=revision: since then; LIST=1: only their names)
	@$(BIN)/python -m tests.quick $(SINCE:%=--since %) $(if $(LIST),--list)

durations: $(STAMP) ## Run `make test` (TIER=lab: `make lab`) and write how long each file takes into tests/durations.md
	@$(BIN)/python -m tests.durations $(TIER)

test-oldest: ## Unit and Spark tests with the oldest dependencies that pyproject.toml accepts
	@$(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check uv pip wheel 'setuptools>=80'
	@SSL_CERT_FILE=$${SSL_CERT_FILE:-$$PIP_CERT} $(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python \
		--resolution lowest-direct --config-settings editable_mode=compat -e '.[demo,test,bench,docs]'
	@PATH="$(CURDIR)/$(OLDEST)/bin:$$PATH" $(OLDEST)/bin/python -m pytest -m "not soak and not lab" tests/unit tests/spark -n 2

versions: $(STAMP) ## The wheel in empty environments: make versions PYTHONS="python3.12 python3.13" SPARKS="4.2.0 4.2.1"
	@$(BIN)/python -m tests.versions.run $(PYTHONS:%=--python %) $(SPARKS:%=--spark %)

check: $(STAMP) ## Format, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: java ## Ratios against Apache Kafka and Spark's JVM connector, in one run: all, or make bench BENCH="direct source"
	@$(BIN)/python -m lab.bench $(BENCH)

soak: classes packages ## Long runs, in parts that can be resumed: PARTS="sim/test_seeds" names them, LIST=1 shows them
	@$(BIN)/python -m tests.soak $(PARTS) $(if $(LIST),--list)

kafka-image: $(STAMP) ## Build a local Apache Kafka image from Maven's jars
	@$(BIN)/python -m tests.containers.kafka_image

integration: classes packages ## The connectors' tests on a real Kafka in a container (needs Docker), and all pages in a browser
	@$(BIN)/python -m tests.containers.run
	@$(MAKE) --no-print-directory pictures

pictures: packages # The screenshots in docs/ that the site shows
	@$(BIN)/python -m tests.ui.pictures docs

try: java ## A Python shell with a broker, a Spark session and a topic
	@$(BIN)/python -m sparkonce.jobs.demo.sandbox

docs: $(STAMP) ## The documentation as a site, in site/; no dead link (PUBLISH=folder: also there, beside other versions)
	@echo "Building the site (half a minute)"
	@$(BIN)/python docs/build.py site $(if $(PUBLISH),--publish '$(PUBLISH)')
	@echo "The site is in site/index.html"

release: java ## Wheel, site, image, list of licences and checksums in dist/, from the last commit (TAG=1: with its tag; BASE=image; WITHOUT="trial image")
	@$(BIN)/python -m lab.release $(if $(TAG),--tag) $(BASE:%=--base %) $(WITHOUT:%=--without %) $(PYTHONS:%=--python %) $(SPARKS:%=--spark %)

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) $(OLDEST) .demo .bench .mypy_cache .ruff_cache build site *.egg-info
