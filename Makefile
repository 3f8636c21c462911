# `make help` lists the targets. Go, git and make are all that most of them need: tools
# are pinned in go.mod and built by the Go command. What makes the playground needs node
# and npm, too; hack/node.sh looks for them.

GO       ?= go
FUZZTIME ?= 60s

# One set of flags for all that is compiled for this machine, programs and tests, so that
# the Go command compiles each package once. Only the race detector needs another. Without
# paths of this clone in it, what is compiled here serves every other clone, too.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath

.DEFAULT_GOAL := help
.PHONY: help build run test check static fmt vet lint tidy generate web browser bench-browser race random kyverno argocd next nightly e2e e2e-existing e2e-upgrade e2e-versions bench bench-compare bench-http scale scale-cluster attack bench-e2e fuzz fuzz-all image release release-check kind

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/mapd, static; with the playground if "make web" has made its site
	$(GO) build -o bin/mapd ./cmd/mapd

run: build ## start the webhook on the examples, send it a Pod, print what changed, stop
	@./hack/run.sh bin/mapd

# Collecting garbage is a third of what tests that compute take of processors. A test of what
# a process may hold sets it back.
test race random: export GOGC ?= 300

test: ## all tests, each once: with -race where goroutines meet, without elsewhere; Gatekeeper itself, and a fixed count of random cases
	@GO="$(GO)" ./hack/test.sh
	$(GO) -C test/gatekeeper test -vet=off -timeout 1h ./...
	$(GO) -C test/scheme test -vet=off -timeout 1h ./...
	@GO="$(GO)" ./hack/changed.sh test/monitoring manifests/monitoring

# What writes into the tree comes first, and what else reads it does not run beside that.
check: generate web static ## what a change must pass besides make test: generated files, the playground and its size, format, vet, lint, tidy

static: fmt vet lint tidy ## the part of make check that only reads

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt-ed:"; echo "$$out"; exit 1; }

vet:
	$(GO) vet ./...
	$(GO) vet -tags e2e ./test/e2e/...
	$(GO) list -export -tags server ./cmd/mapd >/dev/null # compiles; its tests are those of the whole program
	$(GO) -C test/gatekeeper vet ./...
	$(GO) -C test/kyverno vet ./...
	$(GO) -C test/scheme vet ./...
	$(GO) -C test/browser vet ./...

lint:
	$(GO) tool staticcheck ./...
	$(GO) tool staticcheck -tags e2e ./test/e2e/...
	staticcheck=$$($(GO) tool -n staticcheck) && for module in gatekeeper kyverno scheme browser; do (cd test/$$module && $$staticcheck ./...) || exit 1; done

# Vet and lint of test/monitoring are in hack/changed.sh. Tidy is not: for that the Go
# command fetches the modules of all the tests of Prometheus, which nothing here needs.
# Building it fails if anything is missing.
tidy:
	$(GO) mod tidy -diff
	$(GO) -C test/gatekeeper mod tidy -diff
	$(GO) -C test/kyverno mod tidy -diff
	$(GO) -C test/browser mod tidy -diff
	$(GO) -C test/scheme mod tidy -diff

generate: ## make generated files anew and fail if that changes any
	$(GO) generate ./...
	@git diff --exit-code --stat -- pkg/openapi/builtin manifests internal/author/forms docs/*.schema.json editors/vscode/*.schema.json web/app/src/api.ts examples/README.md || { echo "generated files were stale; commit the new ones"; exit 1; }

web: ## build mapd for a browser and the playground's site, and hold the program's size against its limit; needs node and npm
	@GO="$(GO)" ./hack/web.sh bin/web internal/author/playground/site

# The site as it was last built, if that was after the last change of what it is made from.
SITE := internal/author/playground/site/version.txt
$(SITE): $(wildcard $(shell git ls-files web pkg internal docs examples README.md hack/web.sh hack/gallery hack/wasmlimit go.mod 2>/dev/null))
	@$(MAKE) --no-print-directory web

# The program has the site in it, so it is built after that.
browser: $(SITE) ## the playground in Chromium, driven by a program: every pane, links, attacks, accessibility; RUN=REGEXP for some
	@$(MAKE) --no-print-directory build
	chromium=$$(./hack/chromium.sh) && MAPD_CHROMIUM=$$chromium $(GO) -C test/browser test -count 1 -timeout 30m -run '$(or $(RUN),.)' ./...

bench-browser: $(SITE) ## the playground in Chromium: transferred bytes, time to the first result, keystroke to result, memory
	@$(MAKE) --no-print-directory build
	chromium=$$(./hack/chromium.sh) && MAPD_CHROMIUM=$$chromium $(GO) -C test/browser test -count 1 -timeout 30m -run '^TestFigures$$' -figures -v ./...

# All but what reads the source, tests that make test runs without -race included.
race: ## every package with -race, and fewer random cases
	CGO_ENABLED=1 $(GO) test -vet=off -race -short -timeout 1h $$($(GO) list ./... | grep -vx 'github.com/mapd-project/mapd')

kyverno: ## hold converted policies against Kyverno's own engine, and move from its admission controller to mapd; the first run builds both: three quarters of an hour
	$(GO) -C test/kyverno test -vet=off -count 1 -timeout 1h . -objects 300
	@test/e2e/servers/build.sh >/dev/null
	@test/e2e/kyverno/build.sh kyverno >/dev/null
	MAPD_E2E_KYVERNO=1 $(GO) test -tags e2e -count 1 -timeout 1h -run '^TestKyverno' -v ./test/e2e

argocd: ## hold the rules of "mapd export ignore --for argocd" against Argo CD's own comparison; the first run builds it
	$(GO) -C test/argocd vet .
	$(GO) -C test/argocd build -o $(abspath bin/argocd) .
	MAPD_ARGOCD=$(abspath bin/argocd) $(GO) test -vet=off -count 1 -run '^(TestIgnoreRules|TestIgnoreFixesByArgoCD)$$' ./cmd/mapd

next: ## the cases on the libraries of the next minor of Kubernetes, with the Go that these need, which is fetched; ARGS=-update records
	@GO="$(GO)" ./hack/next.sh $(ARGS)

nightly: ## what takes long and finds little: all of the corpus on real servers, all of their minors, -race everywhere, many random cases, each command a process, Prometheus
	FORCE=1 GO="$(GO)" ./hack/changed.sh test/monitoring manifests/monitoring
	MAPD_SCRIPTS=processes $(GO) test -vet=off -count 1 -timeout 1h -run '^TestScript$$' ./cmd/mapd
	@$(MAKE) --no-print-directory race
	@$(MAKE) --no-print-directory random
	@$(MAKE) --no-print-directory next
	@$(MAKE) --no-print-directory kyverno
	@$(MAKE) --no-print-directory argocd
	@$(MAKE) --no-print-directory e2e
	@$(MAKE) --no-print-directory e2e-versions
	@$(MAKE) --no-print-directory scale-cluster NODES=20 PODS=200 POLICIES=60 DURATION=3m ARGS="-replaced 50 -pod-policies 20"

# The time limit is for all of it: building the servers, which is done once and
# takes minutes, is before. How many tests run at once is in test/e2e/main_test.go; of
# packages one does, because two processes may take the same port for free. Without
# a list of packages the Go command shows what a test program prints at its end.
e2e: export MAPD_E2E_KUBECONFIG = $(if $(findstring command line,$(origin KUBECONFIG)),$(abspath $(KUBECONFIG)))
e2e: ## against real servers, or the cluster of KUBECONFIG=FILE: the same cases natively and through mapd, faults, load
	@test -n "$$MAPD_E2E_KUBECONFIG" || test/e2e/servers/build.sh >/dev/null
	@test -n "$$MAPD_E2E_KUBECONFIG" || test/e2e/helm/build.sh >/dev/null
	$(GO) -C test/e2e test -tags e2e -count 1 -p 1 -timeout 1h $(if $(MAPD_E2E_KUBECONFIG),,./...)

FROM ?= 80a51557

e2e-existing: ## 20,000 objects brought in line on a real server, with the holder of the Lease killed and the API server restarted: writes, requests, time, memory
	@test/e2e/servers/build.sh >/dev/null
	MAPD_E2E_EXISTING=1 $(GO) -C test/e2e test -tags e2e -count 1 -timeout 90m -run '^TestExistingLoad$$' -v .

e2e-upgrade: ## from the commit FROM to this tree and back, on real servers, while requests flow: policies, certificates and state stay
	@test/e2e/servers/build.sh >/dev/null
	MAPD_E2E_UPGRADE_FROM=$(FROM) $(GO) -C test/e2e test -tags e2e -count 1 -timeout 30m -run '^TestUpgrade$$' -v .

RELEASES ?= 1.32.13 1.33.13 1.34.9 1.35.8 1.36.4 1.37.2

e2e-versions: ## servers of RELEASES, one of each minor, built and held against docs/reference/versions.md; ARGS=-update writes it
	@for release in $(RELEASES); do \
		MAPD_E2E_KUBERNETES=$$release test/e2e/servers/build.sh etcd kube-apiserver >/dev/null && \
		MAPD_E2E_KUBERNETES=$$release $(GO) test -tags e2e -count 1 -timeout 30m -run '^TestVersions$$' -v ./test/e2e $(ARGS) || exit 1; \
	done

bench: ## Kubernetes' plugin, Gatekeeper and mapd on the same cases, answers checked: what each costs, ratios, goals; ARGS="-quick", "-run REGEXP", …
	$(GO) -C test/gatekeeper run ./bench $(ARGS)

bench-compare: ## mapd's own benchmarks, this tree and BASE=REVISION in turns; BENCH=REGEXP COUNT=6 BENCHTIME=50ms
	@GO="$(GO)" ./hack/bench-compare.sh "$(BASE)" "$(or $(BENCH),.)" "$(or $(COUNT),6)" "$(or $(BENCHTIME),50ms)"

bench-http: build ## mapd and plain servers side by side over HTTPS: latency, CPU and memory, answers checked, goals as a table
	$(GO) run ./test/load/bench $(ARGS)

# How large a cluster scale-cluster is, and what is done to it.
NODES      ?= 200
PODS       ?= 2000
POLICIES   ?= 150
REPLICAS   ?= 2
APISERVERS ?= 1
DURATION   ?= 10m
OUT        ?= bin/scale

scale-cluster: build ## a cluster of NODES nodes and PODS Pods with mapd: latency, CPU, memory, faults, all of DURATION (10m); POLICIES, REPLICAS, APISERVERS, ARGS="-writes 20 …"; data into OUT; the first run builds KWOK
	@test/e2e/servers/build.sh >/dev/null
	@for program in kwok kube-controller-manager kube-scheduler; do test/e2e/scale/build.sh $$program >/dev/null || exit 1; done
	GOGC=100 $(GO) test -tags e2e -count 1 -run '^TestScale$$' -timeout 3h ./test/e2e/scale -nodes $(NODES) -pods $(PODS) -policies $(POLICIES) \
		-replicas $(REPLICAS) -apiservers $(APISERVERS) -duration $(DURATION) -mapd $(abspath bin/mapd) -out $(abspath $(OUT)) $(ARGS)

attack: build ## what a hostile peer would do to mapd serve, with 100 and 10,000 policies: RSS, answers, and how bystanders fare; ARGS="-run REGEXP -during 10s …"
	$(GO) run ./test/attack/run $(ARGS)

scale: build ## what a replica needs with the policies of clusters of 50, 500 and 5,000 nodes: docs/operate/scale.md
	$(GO) run ./test/load/bench -scale -turns 5 $(ARGS)

bench-e2e: ## create Pods through a real API server: no policy, native policies and mapd, CPU of both processes, ratios, goals
	@test/e2e/servers/build.sh >/dev/null
	GOGC=100 $(GO) test -tags e2e -count 1 -run '^$$' -bench . -benchtime 1x -timeout 10m ./test/e2e/bench

fuzz: ## random policies and objects through mapd and the in-tree plugin for FUZZTIME (60s)
	$(GO) test ./test/differential -run '^$$' -fuzz FuzzDifferential -fuzztime $(FUZZTIME) -fuzzminimizetime 1x

fuzz-all: ## every fuzz target for FUZZTIME (60s) each
	@./hack/fuzz.sh $(FUZZTIME)

ARCH    ?= $(shell $(GO) env GOARCH)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
IMAGE   ?= ghcr.io/mapd-project/mapd:$(VERSION)

image: ## build the image IMAGE for ARCH with docker, with the program that only serves; nothing is pulled
	GOOS=linux GOARCH=$(ARCH) $(GO) build -tags server -trimpath -ldflags '-s -w' -o bin/linux-$(ARCH)/mapd ./cmd/mapd
	docker build --platform linux/$(ARCH) --build-arg ARCH=$(ARCH) --build-arg VERSION=$(VERSION) -t $(IMAGE) .

release: $(SITE) ## archives, images, chart, bills of materials, provenance and checksums into dist, the first time in half an hour; VERSION=v1.2.3, signed with KEY=FILE
	rm -rf dist
	$(GO) run ./hack/release -version "$(VERSION)" -out dist $(if $(KEY),-key "$(KEY)")

release-check: ## hold the release in dist, signed by the key of PUB=FILE, against cosign, skopeo, a registry, Helm, docker, podman and krew, those that are there; with STRICT=1 all have to be
	@STRICT="$(STRICT)" ./hack/release-check.sh dist "$(PUB)"

kind: ## a kind cluster with mapd in it, the examples, and the tests of test/e2e against it
	@./hack/kind.sh
