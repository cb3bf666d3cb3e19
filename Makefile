# make lab      start the course           make test     everything that is checked
# Every target makes the environment it needs in .venv first. Other Python: make PYTHON=python3.12 test

PYTHON ?= python3
ARGS ?=
NB ?=
VENV := .venv
PY := $(VENV)/bin/python
LAB_STAMP := $(VENV)/.lab-stamp
LECTURE_STAMP := $(VENV)/.lecture-stamp
TEST_STAMP := $(VENV)/.test-stamp
PIP_INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check
# What `pip install -e .` would do, but as seen from the environment: before Python 3.13, a path with letters that
# the locale lacks keeps Python from starting.
INSTALL_COURSE := for folder in $(VENV)/lib/python*/site-packages; do echo ../../../.. > $$folder/course.pth; done
UV_LOCK := $(PY) -m uv pip compile --quiet --system-certs --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" --no-emit-index-url --no-emit-find-links

# Names of folders are in UTF-8 on any system of today, whatever locale a terminal has.
PYTHONUTF8 ?= 1
export PYTHONUTF8

# Each stamp is written last and holds the folder it was made in. With no stamp left, as after an interrupted
# install, the environment is made anew; so it is when its Python no longer starts or the folder was moved. The
# shell compares the folders, byte for byte, whatever letters they have.
HERE := pwd -P
$(shell { $(PY) -c "" && test "$$($(HERE))" = "$$(cat $(LAB_STAMP))"; } 2>/dev/null || \
	rm -f $(LAB_STAMP) $(LECTURE_STAMP) $(TEST_STAMP))

.DEFAULT_GOAL := help
.PHONY: help lab fresh lecture slides test lint refresh bench sweep lock clean setup setup-lecture setup-test

help:
	@echo "make lab      start the course in JupyterLab (make lab ARGS=\"--no-browser --port 8899\")"
	@echo "make fresh    put clean copies of notebooks that have a newer version beside yours (make fresh NB=02: of 02)"
	@echo "make lecture  show a notebook as live slides (make lecture NB=04)"
	@echo "make slides   write all notebooks as slides that need no kernel, into build/slides"
	@echo "make test     run every test and compare every notebook's output"
	@echo "make lint     check the style of code and notebooks"
	@echo "make refresh  run all notebooks again and store their output"
	@echo "make bench    measure how fast the helpers are"
	@echo "make sweep    train all models of notebooks 06 and 07 again (two and a half hours on two cores, in stages)"
	@echo "make lock     resolve the pinned versions anew"
	@echo "make clean    remove the environment and caches (never my/)"

setup: $(LAB_STAMP)

setup-lecture: $(LECTURE_STAMP)

setup-test: $(TEST_STAMP)

# Says in one plain sentence what is missing, and makes the environment unless a finished one is there.
define make_venv
@command -v "$(PYTHON)" >/dev/null 2>&1 || \
	{ echo "The course needs Python 3.11 or newer, and '$(PYTHON)' was not found."; exit 1; }
@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "The course needs Python 3.11 or newer, but '$(PYTHON)' is older: try make PYTHON=python3.12."; exit 1; }
@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || \
	{ echo "Python's venv module is missing: on Debian or Ubuntu, install the package python3-venv."; exit 1; }
@"$(PYTHON)" -c 'import os, sys; here = os.getcwd(); here.encode(); sys.exit(":" in here)' 2>/dev/null || \
	{ echo "Python can't work in a folder with a colon in its path, or letters not in UTF-8: give it another name."; \
	exit 1; }
@test -f $(LAB_STAMP) || { echo "Making the environment (a minute or two, only once) ..." && \
	"$(PYTHON)" -m venv --clear $(VENV) || \
	{ echo "If this folder is on a memory stick, which has no links: put it on the computer's own disk."; \
	exit 1; }; }
@rm -f $(LAB_STAMP) $(LECTURE_STAMP) $(TEST_STAMP)
endef

$(LAB_STAMP): requirements.lock pyproject.toml
	$(make_venv)
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL_COURSE)
	@$(HERE) > $@

# Each of the next locks holds all of the one before, so the stamps of both are true after it.
$(LECTURE_STAMP): requirements-lecture.lock requirements.lock pyproject.toml
	$(make_venv)
	@$(PIP_INSTALL) --require-hashes -r requirements-lecture.lock
	@$(INSTALL_COURSE)
	@$(HERE) | tee $(LAB_STAMP) > $@

$(TEST_STAMP): requirements-test.lock requirements-lecture.lock requirements.lock pyproject.toml
	$(make_venv)
	@$(PIP_INSTALL) --require-hashes -r requirements-test.lock
	@$(INSTALL_COURSE)
	@$(HERE) | tee $(LAB_STAMP) $(LECTURE_STAMP) > $@

lab: setup
	@$(PY) -m helpers lab $(ARGS)

fresh: setup
	@$(PY) -m helpers fresh $(NB)

lecture: setup-lecture
	@$(PY) -m helpers lecture "$(NB)" $(ARGS)

slides: setup-lecture
	@$(PY) -m helpers slides

# The notebooks that train models come first and by themselves: from an empty cache, with time of their own. The
# rest is one call, in which a notebook stays in one process. With ARGS, only what they name is run.
TRAINING := notebooks/06_extrapolation.ipynb notebooks/07_context_extension.ipynb
TEST_CACHE := COURSE_CACHE="$$($(HERE))/.test-cache"

test: setup-test
ifeq ($(strip $(ARGS)),)
	@rm -rf .test-cache
	@$(TEST_CACHE) $(PY) -m pytest --nbval --nbval-cell-timeout 1200 --timeout 1200 $(TRAINING)
	@$(TEST_CACHE) $(PY) -m pytest --nbval --nbval-cell-timeout 300 -n 2 --dist loadfile \
		$(addprefix --ignore=,$(TRAINING))
else
	@$(PY) -m pytest --nbval --nbval-cell-timeout 1200 -n 2 --dist loadfile $(ARGS)
endif

lint: setup-test
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check

refresh: setup-test
	@$(PY) tools/refresh.py $(ARGS)

bench: setup-test
	@$(PY) tools/bench.py $(ARGS)

# In this order: each stage needs what those before it wrote. `make sweep STAGES=recall` runs one.
STAGES ?= grid race context_extension tuning_rates recall checks

sweep: setup
	@for stage in $(STAGES); do echo "== $$stage"; $(PY) helpers/data/make_$$stage.py || exit 1; done

# Each lock takes the one before as its constraint, so that learners, lecturers and tests have the same versions.
lock: setup-test
	@$(UV_LOCK) --upgrade pyproject.toml -o requirements.lock
	@$(UV_LOCK) --upgrade --extra lecture -c requirements.lock pyproject.toml \
		-o requirements-lecture.lock
	@$(UV_LOCK) --upgrade --extra lecture --extra test -c requirements-lecture.lock pyproject.toml \
		-o requirements-test.lock

clean:
	rm -rf $(VENV) .venv-lowest .test-cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
