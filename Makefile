# The one way to build, lint and test. `make` lists the targets.

# Go does not ask git for the version: the clone may belong to another user.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -buildvcs=false)

# These packages' tests take longest. They start first, so that the run does not end with one of them alone.
LONGEST := ./queue ./cmd/dbcron ./faults ./scheduler ./sqlschema

VERSION  ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),devel)
PKG      ?= $(LONGEST) ./...
# Tests wait for databases and leases more than for a processor. The linter runs vet.
PARALLEL ?= 6
# The packages whose goroutines share memory.
RACED    := ./queue/... ./scheduler ./lock ./httpapi/... ./internal/guardian ./internal/ops/notify
ARGS     ?=
FUZZTIME ?= 30s
MINUTES  ?= 3
ARCHS    ?= amd64 arm64
SERVERS  ?= postgres-18 mariadb-11.8 postgres-18-bare postgres-failover galera-failover mysql-failover patroni-failover

# SQLite is C translated to Go: the race detector makes it ten times slower and checks no code
# of ours there.
RACE := -race -gcflags='modernc.org/sqlite/lib=-race=false -d=checkptr=0' -gcflags='modernc.org/libc/...=-race=false -d=checkptr=0'

TOOL    := go tool -modfile=tools/go.mod
LINT    := $(TOOL) golangci-lint
RUN     := go run ./dialect/dbtest/withservers
# A line for each package as it ends, failures at once, everything with ARGS=-v. withservers adds what runs.
TEST    := $(RUN) -- $(TOOL) gotestsum --format $(if $(filter -v,$(ARGS)),standard-verbose,pkgname-and-test-fails) --format-hide-empty-pkg -- -vet=off
DIST    := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

# $(call timed,NAME,COMMAND) runs the command and prints how long it took.
timed = @echo "== $(1)"; from=$$(date +%s); $(2) && echo "== $(1): $$(($$(date +%s) - from)) s"

.PHONY: help fmt fmt-check lint cross deps test race proof reliability recovery recoveries smoke compat newest current test-otel test-browser screenshots golden faults soak sim sim-mutants bench bench-peers fuzz check dist packages release hooks up

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

fmt: ## format the code and sort the imports
	$(LINT) fmt

fmt-check: ## fail if fmt would change something
	@$(LINT) fmt --diff

lint: ## check style, formatting, import arrows and go.mod, and compile bench, bench/peers, browser and oteldbcron
	$(call timed,lint,$(LINT) run ./... && go mod tidy -diff && go -C bench vet ./... && go -C bench/peers vet ./... && go -C browser vet ./... && go -C oteldbcron vet ./...)

# The drivers and the programs take minutes: `make dist` builds those.
cross: ## compile the packages with files for other platforms
	$(call timed,cross,for os in darwin windows; do \
		GOOS=$$os CGO_ENABLED=0 go build ./internal/... ./dialect/dbtest/dbserver || exit 1; done)

deps: ## install what the tests need (Debian, root), or list what is missing
	$(call timed,deps,tools/test-deps)

test: deps ## run all tests on all engines; PKG=./lock ARGS='-v -run Renew'
	@$(TEST) -p 3 -parallel $(PARALLEL) -timeout 30m $(ARGS) $(PKG)

# Mutants and plans are about statements.
race: deps ## test the packages with goroutines with the race detector, on PostgreSQL and SQLite
	@DBCRON_TEST_ENGINES=postgres,sqlite $(TEST) $(RACE) -parallel $(PARALLEL) -timeout 60m -skip 'Mutants|Plans' $(ARGS) $(if $(filter file,$(origin PKG)),$(RACED),$(PKG))

proof: deps ## run every test on all engines with the race detector, all long proofs, make reliability with ten minutes of faults, and make compat
	@DBCRON_TEST_LONG=true $(TEST) $(RACE) -parallel $(PARALLEL) -timeout 3h $(ARGS) $(PKG)
	@$(MAKE) --no-print-directory reliability MINUTES=10
	@$(MAKE) --no-print-directory compat current

test-otel: ## test the OpenTelemetry module on SQLite
	$(call timed,oteldbcron,go -C oteldbcron test $(ARGS) ./...)

compat: deps ## test the database's packages on other versions, and clusters that fail over; SERVERS='postgres-18 galera-failover'
	@tools/compat $(SERVERS)

NEWEST := postgres-18 mariadb-11.8
newest: ## test the database's packages on the newest PostgreSQL and MariaDB: at the end of each change to statements, dialects or migrations
	@$(MAKE) --no-print-directory compat current SERVERS='$(NEWEST)'

current: ## fail if a row of docs/compatibility.md fails, or is older than what it tests; SERVERS='postgres-18', or all
	@go test ./docs -count=1 -v -run '^TestCompatibilityIsCurrent$$' -args -servers '$(SERVERS)'

smoke: ## test the dashboard in Chromium on SQLite, without axe: CI's part of test-browser
	$(call timed,deps,tools/test-deps chromium)
	$(call timed,smoke,DBCRON_TEST_ENGINES=sqlite go -C browser test -count=1 -timeout 10m -run 'Browser|SignIn|Questions' ./...)

test-browser: ## test the dashboard in Chromium (Debian's package chromium) on all engines
	$(call timed,deps,tools/test-deps browser)
	@$(RUN) -- go -C browser test -count=1 -timeout 20m $(ARGS) ./...

screenshots: ## take pictures of the dashboard's pages, with test data and of dbcron demo after DEMO=3m, in FOLDER=/tmp/dbcron-screenshots; ONLY=overview,queue
	$(call timed,deps,tools/test-deps browser)
	@go -C browser test -count=1 -timeout 20m -run Pictures . -args -pictures $(or $(FOLDER),/tmp/dbcron-screenshots) $(if $(DEMO),-demo $(DEMO)) $(if $(ONLY),-only $(ONLY))

golden: ## rewrite the golden files; read the diff before you commit it
	@$(RUN) -- go test ./dialect ./sqlschema ./cmd/dbcron -run 'Golden|CLI' -update

# $(call totals,COMMAND) begins a file of totals with what made it.
comma  := ,
totals = $(if $(TOTALS),echo "{\"Command\":\"$(1)$(if $(ARGS), ARGS=$(ARGS))\"$(comma)\"Commit\":\"$$(git describe --always --dirty '--exclude=*')\"}" >$(abspath $(TOTALS)))
into   = $(if $(TOTALS),>>$(abspath $(TOTALS)))

faults: ## kill, pause and cut off processes for MINUTES=3; TOTALS=file has the outcomes for faults/report
	@$(call totals,make faults MINUTES=$(MINUTES))
	@DBCRON_TEST_LONG=true $(RUN) -durable -- go test -count=1 -timeout 60m $(if $(TOTALS),-json,-v) ./faults -minutes $(MINUTES) -jobs 20000 $(ARGS) $(into)

HOURS ?= 1
soak: ## watch memory, goroutines, tables and latency for HOURS=1, all engines at once, and draw them into docs/pictures/soak.svg
	@$(call totals,make soak HOURS=$(HOURS))
	@DBCRON_TEST_LONG=true $(RUN) -durable -- go test -count=1 -timeout 0 $(if $(TOTALS),-json,-v) ./faults -run '^TestSoak$$' -hours $(HOURS) -chart $(abspath docs/pictures/soak.svg) $(into)

recovery: ## measure how long work waits whose process is killed or paused, and write the table into docs/reliability.md, in ten minutes
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; $(MAKE) --no-print-directory recoveries TOTALS=$$dir/recovery.json && go run ./faults/report -dir $$dir

recoveries:
	@$(call totals,make recovery)
	@$(RUN) -durable -- go -C bench test -count=1 -timeout 30m $(if $(TOTALS),-json,-v) -run '^TestRecovery$$' . $(ARGS) $(into)

# The seeds of a proof: each workload has so many.
PROOF_SEEDS ?= 100
reliability: deps ## write docs/reliability.md: make faults, make sim and make sim-mutants, in an hour
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; code=0; \
		$(MAKE) --no-print-directory sim SEEDS=$(PROOF_SEEDS) MINUTES=1 TOTALS=$$dir/simulation.json || code=1; \
		$(MAKE) --no-print-directory sim-mutants TOTALS=$$dir/mutants.json || code=1; \
		$(MAKE) --no-print-directory faults TOTALS=$$dir/servers.json || code=1; \
		go run ./faults/report -dir $$dir && exit $$code

# A seed given as SEED=17 is run alone, and twice.
SEEDS    ?= 50
SIM      := -first $(or $(SEED),$(FROM),1) -seeds $(if $(SEED),1 -twice,$(SEEDS)) -minutes $(if $(filter file,$(origin MINUTES)),1,$(MINUTES)) \
	$(if $(WORKLOAD),-workload $(WORKLOAD)) $(if $(WITH),-with $(WITH)) $(if $(SHOW),-show $(SHOW)) $(if $(KEEP),-keep $(KEEP)) \
	$(if $(TOTALS),-totals $(abspath $(TOTALS))) $(if $(TWICE),-twice)
sim: ## simulate SEEDS=50 lives, from FROM=1 on, of MINUTES=1 of each workload in virtual time, and add them to TOTALS=file; WORKLOAD=queue SEED=17 WITH=fault.kill=5 SHOW=key3/12 KEEP=name
	@bin=$$(mktemp -d)/simulation.test; trap 'rm -rf "$${bin%/*}"' EXIT; \
		go test -c -vet=off -overlay=$$(go run ./simulation/overlay) -o $$bin ./simulation && cd simulation && $$bin -test.run '^TestSimulation$$' -test.timeout 0 \
		-across $$(getconf _NPROCESSORS_ONLN) $(SIM)

sim-mutants: ## put faults into copies of the product, and see after how many seeds a simulation finds each that TOTALS=file does not tell of this commit; ARGS='-mutant fence'
	@go test -count=1 -timeout 0 -vet=off -v ./simulation -run '^TestMutants$$' -mutants -minutes 1 -across $$(getconf _NPROCESSORS_ONLN) $(if $(TOTALS),-totals $(abspath $(TOTALS))) $(ARGS)

bench: ## run the measurements behind docs/benchmarks.md, docs/figures.md and decisions; ARGS='-run LockPairs'
	@$(RUN) -durable -- go -C bench test -count=1 -v -timeout 60m $(ARGS) ./...

bench-peers: ## compare dbcron with River, asynq, JetStream, redsync and etcd (about 15 minutes); ARGS='-rounds 1 -only etcd'
	@tools/test-deps peers
	@DBCRON_TEST_ENGINES=postgres $(RUN) -durable -- go -C bench/peers test -count=1 -v -timeout 60m . -chart ../../docs/pictures/peers.svg $(ARGS)

fuzz: ## run each fuzz test for FUZZTIME=30s
	@grep -rEo --include='*_test.go' --exclude-dir=bench --exclude-dir=browser '^func Fuzz[A-Za-z0-9_]*' . | \
	sed 's#/[^/]*:func # #' | while read -r dir name; do \
		echo "== $$dir $$name"; \
		go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) "$$dir" || exit 1; done

check: ## run everything that CI runs
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory cross
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory race
	@$(MAKE) --no-print-directory sim SEEDS=1 MINUTES=0.5 TWICE=1
	@$(MAKE) --no-print-directory smoke
	@$(MAKE) --no-print-directory test-otel
	$(call timed,packages,packaging/check)

dist: ## build release binaries and their sha256 sums in dist/
	@rm -rf dist && mkdir dist
	@for os in $(DIST); do \
		echo "dbcron $(VERSION) $$os"; \
		GOOS=$${os%/*} GOARCH=$${os#*/} CGO_ENABLED=0 go build -trimpath \
			-ldflags "-s -w -X main.version=$(VERSION)" \
			-o "dist/dbcron-$(VERSION)-$${os%/*}-$${os#*/}" ./cmd/dbcron || exit 1; done
	@cd dist && { command -v sha256sum >/dev/null && sha256sum dbcron-* || shasum -a 256 dbcron-*; } >SHA256SUMS
	@cat dist/SHA256SUMS

# A package's version is a number: a commit gets one below the first release.
PACKAGE_VERSION := $(if $(filter v0% v1% v2% v3% v4% v5% v6% v7% v8% v9%,$(VERSION)),$(VERSION:v%=%),0.0.0~$(VERSION))

packages: ## build a .deb and an .rpm for ARCHS="amd64 arm64" in dist/
	$(call timed,packages,packaging/build $(PACKAGE_VERSION) $(ARCHS))

release: ## build everything to publish, with sums: dist and packages
	@$(MAKE) --no-print-directory dist packages
	@cd dist && { command -v sha256sum >/dev/null && sha256sum dbcron* || shasum -a 256 dbcron*; } >SHA256SUMS
	@cat dist/SHA256SUMS

hooks: ## lint before each commit
	git config core.hooksPath .githooks

up: ## start database servers, print their URLs, run until Ctrl-C
	@$(RUN)
