# Everything a newcomer needs: `make demo` and `make test`. See CONTRIBUTING.md for the rest.
SHELL := /bin/bash
CARGO ?= cargo
BIN := target/release/tidegate
# The image's program is optimised like the package's. Acceptance takes the release build: no second compilation.
IMAGE_PROFILE ?= dist

.PHONY: help demo test acceptance stress properties experiments bench lint packages compiler book deb image \
	release lab

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

demo: release ## A saturating array, a victim, its neighbours: before and after, live
	$(BIN) demo

test: ## Lints, all tests with real clients, the demo
	@scripts/test

acceptance: ## A short version of most experiments, the Debian package, fuzzing, licences of the crates
	@scripts/acceptance

stress: ## Every test with a socket or a process, fifty times beside other load: 60 minutes at most
	@scripts/run-tests.py --stress 50 --minutes 60

properties: ## Every property test a hundred times, on new random cases: 60 minutes at most
	@scripts/run-tests.py --properties 100 --minutes 60

experiments: ## Every experiment in full; dated results under bench/runs/
	@scripts/experiments

bench: ## Speed benches, each beside the program or method that it compares with
	@scripts/bench

lint: compiler ## Formatting and lints, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

packages: ## Install the clients and the emulator that the tests use (Debian, as root), and the lab's kernel
	@lab/setup

book: ## The guide and the reference as HTML, with mdBook
	@scripts/book

deb: compiler ## A Debian package with the program, its services and documents
	$(CARGO) build --locked --profile dist --package tidegate
	@scripts/deb

# Only the last crate is compiled with another option: it decides how the C library is linked.
image: compiler ## An OCI image of a static program: target/tidegate-oci.tar
	$(CARGO) rustc --locked --profile $(IMAGE_PROFILE) --package tidegate --bin tidegate -- \
		-C target-feature=+crt-static
	@scripts/image target/$(IMAGE_PROFILE)/tidegate

compiler: ## Install clang, which compiles the programs for the kernel (Debian, as root)
	@scripts/compiler

release: compiler ## The release binary, and its line tables beside it
	$(CARGO) build --locked --release --package tidegate
	@scripts/split-debug $(BIN)

# With the package of `release`: then both builds select the same features and share the compiled libraries.
lab: ## Build tidegate-lab: the papers' experiments and the arena
	$(CARGO) build --locked --release --package tidegate --package tidegate-lab --bin tidegate-lab
