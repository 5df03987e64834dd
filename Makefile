# make demo: sets everything up and shows the main job.   make test: sets everything up and runs the tests.
# Needs a Python 3.11 or newer and access to the package registries; KOPS_PYTHON=/path/to/python names one that is not found by itself.

PY = .venv/bin/python
# The hot modules (HOT_MODULES).
HOT = $(wildcard $(addsuffix .py,$(subst .,/,$(shell sed -n 's/^    "\(kops\.[a-z_.]*\)",$$/\1/p' kops/_compiled.py))))

.PHONY: help setup compile demo test browser test-slow lint format bench man docs recording messages clean distclean

help:
	@echo "make demo       show the main job: a cluster, a kill -9, its files (sets everything up first)"
	@echo "make test       linters, types, layers and the fast tests    make test-slow   the slow tests"
	@echo "make bench      kops and Kafka's own tools on the same files  make lint        linters, types and layers only"
	@echo "make setup      .venv with everything                        make compile     the hot loop as C (optional)"
	@echo "make messages   write kops/protocol/messages from the descriptors in Kafka's jars"
	@echo "make man        write the manual pages from the commands      make format      format the source"
	@echo "make docs       write the tables of settings and errors       make recording  record the session of the README"
	@echo "make clean      remove what was built and cached              make distclean   and the .venv"

# The C compiler needs no Spark, which is by far the largest part of the set-up: it is installed while the compiler works.
setup: .venv/.kops-set-up

.venv/.kops-dev: pyproject.toml setup.py tools/setup.sh tools/find_python.sh
	@sh tools/setup.sh dev
	@touch $@

.venv/.kops-set-up: .venv/.kops-dev tools/s3-server.txt
	@sh tools/setup.sh spark,dev
	@touch $@

compile: build/.kops-compiled

build/.kops-compiled: $(HOT) setup.py kops/_compiled.py | .venv/.kops-dev
	@mkdir -p build && touch $@.begun
	@$(PY) setup.py -q build_ext --inplace --force
	@mv $@.begun $@

demo:
	@$(MAKE) --no-print-directory -j2 setup compile
	@$(PY) tools/demo.py

lint: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

# Four workers that start on a fresh tree would compile every test and every module four times.
# The C compiler may be at work beside it, so it takes the source of the modules.
build/.kops-bytecode: | setup
	@mkdir -p build
	@env -u PYTHONDONTWRITEBYTECODE $(PY) -m compileall -q kops tools
	@env -u PYTHONDONTWRITEBYTECODE KOPS_PURE=1 $(PY) -m pytest --collect-only -qq -n 0 >build/bytecode.log || { cat build/bytecode.log; exit 1; }
	@touch $@

# The C compiler, the set-up, the linters and the byte code share the cores.
test:
	@$(MAKE) --no-print-directory -j2 lint compile build/.kops-bytecode
	@sh tools/tests.sh fast

# Chromium, for the tests that look at pages, and mactime, for the one that reads a timeline.
browser:
	@sh tools/debian_package.sh chromium "the tests of pages" chromium chromium-browser google-chrome
	@sh tools/debian_package.sh sleuthkit "the tests of timelines" mactime

test-slow: setup compile browser
	@sh tools/tests.sh slow

bench: setup compile
	@$(PY) -m tests.bench

man: setup
	@$(PY) tools/make_man.py

docs: setup
	@$(PY) -m tools.make_docs

recording: setup compile
	@$(PY) tools/make_recording.py

messages: setup
	@$(PY) tools/make_messages.py

format: setup
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean:
	rm -rf build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	rm -f *__mypyc.*.so
	find kops -name '*.so' -delete
	find kops tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
