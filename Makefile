# weir: the commands for people. The build itself is CMake's; see CMakePresets.json.
# SPDX-License-Identifier: Apache-2.0

.DEFAULT_GOAL := build
.PHONY: build install uninstall deb wheel dist run test check check-quick agents oracles bench docs format clean help

# $(value) keeps a "$" in the prompt from being taken for a make variable.
unexport PROMPT MODEL
run: export WEIR_RUN_PROMPT := $(value PROMPT)
run: export WEIR_RUN_MODEL := $(value MODEL)

build: ## build everything into build/release
	@scripts/deps.sh run
	@scripts/build.sh release

install: ## make install [PREFIX=/usr/local] [DESTDIR=...] [LIBDIR=lib]: library, header, program, man pages, completions
	@scripts/deps.sh run
	@scripts/install.sh

uninstall: ## make uninstall [PREFIX=/usr/local] [DESTDIR=...]: remove what make install wrote; settings, models and caches stay
	@scripts/uninstall.sh

deb: ## Debian packages in build/deb: weir, its libraries, libweir-dev; scripts/deb_check.sh tries them in a clean Debian
	@scripts/deps.sh deb
	@scripts/deb.sh

wheel: ## a wheel of the Python package in build/wheel, with library and program inside; pipx tries it with no compiler in PATH
	@scripts/deps.sh run
	@scripts/build.sh release weir_shared weir_cli
	@scripts/wheel.sh

dist: ## a release of the sources in build/dist: the same bytes each time, checksums and a list of parts (SPDX)
	@scripts/dist.sh

run: ## make run [PROMPT="..."] [MODEL=file.gguf]: ask a model something; installs, fetches and builds what is missing
	@scripts/run.sh

test: ## build and run the tests
	@scripts/deps.sh test
	@scripts/build.sh release
	@scripts/model.sh >/dev/null
	@scripts/test.sh release

check: ## warnings, formatting, lint, exported names, sanitizers, page, clients, fuzzing [FUZZ_SECONDS=30]
	@scripts/deps.sh check
	@scripts/check.sh

check-quick: ## before a push: formatting, warnings, unit tests without llama.cpp, lint of what changed [WEIR_BASE=branch]
	@scripts/deps.sh check
	@scripts/check.sh format layers markdown unit lint-changed

agents: ## agents in real loops with the server, by no network [AGENT="claude codex ..."] [BUMP=1: their newest versions]
	@scripts/deps.sh run
	@scripts/agents.sh $(if $(BUMP),--bump) $(AGENT)

oracles: ## compare weir with the field's own tools, by tests/oracles [ORACLE="samplers model_files media metrics"]
	@scripts/deps.sh run
	@scripts/oracle.sh $(ORACLE)

bench: ## measure, beside llama.cpp's own benchmarks
	@scripts/bench.sh

docs: ## a site of all pages and the reference of the headers, build/docs/site/index.html
	@scripts/deps.sh docs
	@scripts/docs.sh

format: ## format the C and C++ in place
	@scripts/format.sh

clean: ## remove build/ (llama.cpp and the model stay in the cache, ~/.cache/weir)
	@rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile
