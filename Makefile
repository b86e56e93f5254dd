# Targets are for people and for CI alike; each line can be run by hand.
GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
PLATFORMS   := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
FUZZTIME    ?= 10m
# Modules of their own: what a user of the program has no use for.
NESTED      := ingest/sqltest render/browsertest bench

.PHONY: help demo build test check fmt vet vuln lint race bench-once determinism cross fuzz site-1000 validate-diff

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

demo: ## no server at hand: simulate one, measure it over HTTP, render the pages into demo/site
	$(GO) run ./cmd/speedmatrix demo -o demo

build: ## the program, as ./speedmatrix
	$(GO) build -trimpath -o speedmatrix ./cmd/speedmatrix

test: ## all tests, DuckDB as an independent reader included
	$(GO) test -timeout 20m ./...
	cd ingest/sqltest && $(GO) test ./...
	cd bench && $(GO) test ./...

check: fmt vet lint race bench-once determinism cross ## everything that CI demands

fmt:
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }

vet:
	$(GO) mod tidy -diff
	$(GO) vet ./...
	@for m in $(NESTED); do echo "vet $$m"; (cd $$m && $(GO) mod tidy -diff && $(GO) vet ./...) || exit 1; done

vuln: ## known vulnerabilities in what is used
	$(GO) run $(GOVULNCHECK) ./...

lint:
	$(GO) run $(STATICCHECK) ./...
	@for m in $(NESTED); do echo "staticcheck $$m"; (cd $$m && $(GO) run $(STATICCHECK) ./...) || exit 1; done

# What the long tests of the commands drive runs under the detector in its own
# package; they themselves, and the site of many runs, run without it in "test".
race: ## tests with the race detector; fuzz targets run their seeds
	$(GO) test -race -timeout 20m -skip '^TestManyRuns$$' $$($(GO) list ./... | grep -v /cmd/)
	$(GO) test -race -timeout 20m -skip '^(TestCase_|TestScripts|TestLaunch|TestDiff|TestNoise|TestKill|TestInterrupt|TestStarved|TestCollectorThatHasTime|TestCellThatDoesNotFit)' ./cmd/...

bench-once: ## every Go benchmark once, so that none rots
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

# The measuring programs are a module of their own, so that the peers they
# measure against are no business of the program's.
BENCHES := $(filter-out report,$(patsubst bench/%/main.go,%,$(wildcard bench/*/main.go)))
.PHONY: bench performance $(addprefix bench-,$(BENCHES))
bench: $(addprefix bench-,$(BENCHES)) ## measure against the targets: bench/out/*.jsonl and a table; wants a quiet machine
	@cd bench && $(GO) run ./report $(patsubst %,out/%.jsonl,$(BENCHES))

$(addprefix bench-,$(BENCHES)): bench-%: build ## one of them: bench-ingest, bench-runlog, …
	@mkdir -p bench/out
	cd bench && $(GO) build -o out/ ./$* && out/$* > out/$*.partial && mv out/$*.partial out/$*.jsonl

.PHONY: peers
peers: ## the clients that make bench-collector measures ours beside, pinned, into bench/peers: 14 GB
	bench/collector/peers.sh bench/peers

performance: ## what make bench measured last, into docs/performance.md
	cd bench && $(GO) run ./report -doc ../docs/performance.md $(patsubst %,out/%.jsonl,$(BENCHES))

determinism: ## the same runs rendered twice, in another time zone and locale, give the same bytes
	scripts/determinism.sh

cross: ## builds for every platform
	@for p in $(PLATFORMS); do echo "build $$p"; \
	  CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -trimpath -o /dev/null ./cmd/speedmatrix || exit 1; done

fuzz: ## each fuzz target for FUZZTIME
	@for pkg in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	  echo "fuzz $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; done; done

.PHONY: truth validate-diff
truth: ## 200 random runs compared with the simulator's own record
	$(GO) test ./cmd/speedmatrix -run TestGroundTruth -v -timeout 3h -truth-runs=200 -truth-seed=1001

validate-diff: ## how reliable a comparison's verdicts are: simulates for minutes, writes docs/diff-validation.md
	SPEEDMATRIX_VALIDATE_DIFF=$(CURDIR)/docs/diff-validation.md nice -n 10 $(GO) test -count 1 -timeout 5h -run '^TestValidation$$' ./ingest/compare

site-1000: ## a site of 1,000 runs, built twice and again after one changed: the same bytes, and the times
	SPEEDMATRIX_SITE_RUNS=1000 $(GO) test ./render -run '^TestManyRuns$$' -count 1 -v -timeout 60m

.PHONY: browser browser-tools
browser-tools: ## axe-core and the W3C's HTML checker for the browser tests, pinned by their content, into a folder that git ignores
	scripts/npm-file.sh axe-core@4.14.1 sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ== render/browsertest/tools/axe-core axe.min.js LICENSE
	scripts/npm-file.sh vnu-jar@26.9.27 sha512-TkQd5DFfOaWC9ebtvozTsrH2Vaod3jYg+vrOeREzIXxBexLz9+rS2DNtjn7+RPUiZhgli0SghgBX6RJRNea0KA== render/browsertest/tools/vnu-jar build/dist/vnu.jar LICENSE

browser: browser-tools assets ## pages in a real Chromium: network, console, scripts off, keyboard, phone, paper, axe-core, valid HTML
	cd render/browsertest && $(GO) test -timeout 20m ./...

.PHONY: assets
assets: ## Apache ECharts for charts that can be pointed at, pinned by its content, into a folder that git ignores; build again after it
	scripts/npm-file.sh echarts@6.1.0 sha512-q0yaFPggC9FUdsWH4blavRWFmxdrIodbkoKNAjJudAI6CA9gNPxHtV2RcZNEepZVlk4yvBYkOkbk6HIVpIyHZA== templates/echarts/npm/echarts package.json dist/echarts.min.js LICENSE NOTICE licenses/LICENSE-d3
	scripts/npm-file.sh zrender@6.1.0 sha512-oEGMDB6pOP2S6OwRR4PdVv610zrjnA3Bh+JnSG12fYJlBKjtNAoEb5fSUoCOOINlH96I2fU38/A2UpRKs67xYQ== templates/echarts/npm/zrender LICENSE
