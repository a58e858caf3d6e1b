# make help lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Pure Go: no libgpgme, no libbtrfs.
TAGS := containers_image_openpgp exclude_graphdriver_btrfs
# What only test-full runs, and the programs that write man pages.
FULLTAGS := mcd boots kube manpages
GO := go
export CGO_ENABLED := 0
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
CONTROLLERGEN := sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 10s
MCD := bin/machine-config-daemon bin/machine-config-daemon-4.20
KUBE := bin/kube/kube-apiserver

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: deps-go ## Build the static binary bin/oneboot
	$(GO) build -trimpath -tags "$(TAGS)" -ldflags "$(LDFLAGS)" -o bin/oneboot ./cmd/oneboot
	@test $$(stat -c %s bin/oneboot) -lt $$((16 << 20)) || { echo "bin/oneboot has 16 MiB or more: see cmd/oneboot/usage.go"; exit 1; }

.PHONY: build-cluster
build-cluster: deps-go ## Build the static binary bin/oneboot-cluster
	$(GO) build -trimpath -tags "$(TAGS)" -ldflags "$(LDFLAGS)" -o bin/oneboot-cluster ./cmd/oneboot-cluster

# ARCHES="amd64 arm64" makes one image for both.
ARCHES ?= $(shell $(GO) env GOARCH 2>/dev/null)
.PHONY: image
image: deps-go ## Build the container images bin/oneboot.oci.tar and bin/oneboot-cluster.oci.tar, without an engine
	@set -e; for name in oneboot oneboot-cluster; do images=""; for arch in $(ARCHES); do \
	  GOARCH=$$arch $(GO) build -trimpath -tags "$(TAGS)" -ldflags "$(LDFLAGS)" -o bin/$$name-$$arch ./cmd/$$name; \
	  images="$$images $$arch=bin/$$name-$$arch"; \
	done; $(GO) run -tags "$(TAGS)" ./test/image -name $$name -o bin/$$name.oci.tar $$images; done

# VERSION, ARCHES and what is committed decide every byte.
RELEASEARCHES ?= amd64 arm64 ppc64le s390x
EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
.PHONY: release
release: deps-go ## Build dist/: both programs for four architectures, SBOMs, man pages, completions, checksums
	release/build dist "$(VERSION)" "$(TAGS)" "$(EPOCH)" $(RELEASEARCHES)

.PHONY: release-check
release-check: deps-go ## Build a release for amd64 twice and compare the bytes
	release/check "$(VERSION)" "$(TAGS)" "$(EPOCH)"

.PHONY: man
man: deps-go ## Write man pages and completions below bin/share
	@mkdir -p bin; set -o pipefail; for name in oneboot oneboot-cluster; do SOURCE_DATE_EPOCH=$(EPOCH) $(GO) run -tags "$(TAGS) manpages" -ldflags "-X main.version=$(VERSION)" ./cmd/$$name | tar -C bin -xf - || exit 1; done

.PHONY: demo
demo: deps build ## Real sysroot, registry and images; analyze three nodes
	$(GO) run -tags "$(TAGS)" ./test/demo bin/oneboot

.PHONY: test
test: deps ## Run all tests (root, Debian; under 10 minutes on 2 cores)
	$(GO) vet -tags "$(TAGS)" ./...
	$(GO) test -tags "$(TAGS)" -timeout 10m ./...
	cd test/oracle && CGO_ENABLED=1 $(GO) test -timeout 5m ./...
	cd test/manifests && $(GO) vet ./... && $(GO) test -count=1 -timeout 5m ./...

.PHONY: test-full
test-full: test-mcd test-kube test-boots ## Run the long tests too: the real machine-config-daemon and API server, real boots

.PHONY: test-mcd
test-mcd: deps $(MCD) mcd-integration
	$(GO) test -tags "$(TAGS) mcd" -count=1 -timeout 15m ./test/mcdlab

.PHONY: test-kube
test-kube: deps $(KUBE)
	$(GO) test -tags "$(TAGS) kube" -count=1 -timeout 15m ./test/kube

.PHONY: bench-kube
bench-kube: deps $(KUBE) ## The controller in clusters of 500 and of 5,000 nodes
	$(GO) test -tags "$(TAGS) kube" -run '^$$' -bench Scale -benchtime 1x -timeout 60m -v ./test/kube

# Nodes in QEMU. The Debian tree is made once on a machine.
.PHONY: test-boots
test-boots: deps-full bin/machine-config-daemon
	$(GO) test -tags "$(TAGS) boots" -count=1 -v -parallel 2 -timeout 60m -run 'TestBoots|TestKexec$$' ./test/boots

# The rest of the fast reboot's cases on systemd 257: too long for test-full.
.PHONY: test-kexec-later
test-kexec-later: deps-full bin/machine-config-daemon
	$(GO) test -tags "$(TAGS) boots" -count=1 -v -parallel 2 -timeout 60m -run TestKexecLater ./test/boots

# The real machine-config-daemon of two releases: some minutes the first time.
bin/machine-config-daemon: test/mcd/build test/mcd/4.14/go.mod test/mcd/4.14/go.sum | deps-go
	test/mcd/build 4.14 $(CURDIR)/$@ "$(TAGS)"
bin/machine-config-daemon-4.20: test/mcd/build test/mcd/4.20/go.mod test/mcd/4.20/go.sum | deps-go
	test/mcd/build 4.20 $(CURDIR)/$@ "$(TAGS)"

# That of 4.20 with this tree as a library: docs/integration.md.
.PHONY: mcd-integration
mcd-integration: deps-go
	test/mcd/build integration $(CURDIR)/bin/machine-config-daemon-oneboot "$(TAGS)"

# The real kube-apiserver, and etcd beside it: some minutes the first time.
bin/kube/kube-apiserver: test/kube/binaries/build test/kube/binaries/go.mod test/kube/binaries/go.sum | deps-go
	test/kube/binaries/build $(CURDIR)/bin/kube

.PHONY: lint
lint: deps-go ## gofmt, go vet and staticcheck
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt would change:"; echo "$$out"; exit 1; }
	$(GO) vet -tags "$(TAGS) $(FULLTAGS)" ./...
	$(GO) run $(STATICCHECK) -tags "$(TAGS) $(FULLTAGS)" ./...

.PHONY: vuln
vuln: deps-go ## govulncheck of both programs; it asks vuln.go.dev
	$(GO) run $(GOVULNCHECK) -tags "$(TAGS)" ./cmd/...

.PHONY: generate
generate: deps-go ## Generate the CRDs and the deep copies of pkg/api
	$(GO) run $(CONTROLLERGEN) object paths=./pkg/api/... crd output:crd:dir=manifests/controller/base/crds

.PHONY: fuzz
fuzz: deps-go ## Run each fuzz target for FUZZTIME (10s)
	@set -e; for pkg in $$($(GO) list -tags "$(TAGS)" ./...); do \
	  for f in $$($(GO) test -tags "$(TAGS)" -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; $(GO) test -tags "$(TAGS)" -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$pkg; \
	  done; done

# Every row is a ratio measured in the same run; the Go benchmarks' own lines are in
# bin/bench.log.
.PHONY: bench
bench: deps $(MCD) ## Print one table: oneboot beside skopeo and the machine-config-daemon
	@set -o pipefail; $(GO) test -tags "$(TAGS) mcd" -run '^$$' -bench 'Table|Inspect|Decision' -benchtime 1x -timeout 60m -p 1 -v ./test/bench ./test/inspect ./test/mcdlab >bin/bench.log 2>&1 \
	  || { tail -40 bin/bench.log; exit 1; }
	@grep '^|' bin/bench.log | awk '!seen[$$0]++'

# What the targets need and a fresh Debian machine lacks.
.PHONY: deps
deps: deps-go bin/promtool
	@need=""; \
	command -v ostree >/dev/null || need="$$need ostree"; \
	command -v chattr >/dev/null || need="$$need e2fsprogs"; \
	command -v skopeo >/dev/null || need="$$need skopeo"; \
	command -v gpg >/dev/null || need="$$need gnupg"; \
	command -v strace >/dev/null || need="$$need strace"; \
	command -v rpmbuild >/dev/null || need="$$need rpm"; \
	command -v createrepo_c >/dev/null || need="$$need createrepo-c"; \
	command -v systemd-analyze >/dev/null && test -x /usr/lib/systemd/systemd || need="$$need systemd"; \
	command -v podman >/dev/null || need="$$need podman crun"; \
	command -v sgdisk >/dev/null || need="$$need gdisk"; \
	command -v mkfs.xfs >/dev/null || need="$$need xfsprogs"; \
	command -v mkfs.vfat >/dev/null || need="$$need dosfstools"; \
	command -v groff >/dev/null || need="$$need groff-base"; \
	command -v mandoc >/dev/null || need="$$need mandoc"; \
	command -v gcc >/dev/null || need="$$need gcc libc6-dev"; \
	command -v pkg-config >/dev/null || need="$$need pkg-config"; \
	pkg-config --exists ostree-1 2>/dev/null || need="$$need libostree-dev"; \
	if [ -n "$$need" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$need; fi

# Debian's promtool without Prometheus, which would be started on installation.
bin/promtool:
	@mkdir -p bin && work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && chmod 755 "$$work" && \
	apt-get update -qq && cd "$$work" && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb . && mv usr/bin/promtool "$(CURDIR)/$@"

# What only test-full needs.
.PHONY: deps-full
deps-full: deps
	@need=""; \
	command -v qemu-system-x86_64 >/dev/null || need="$$need qemu-system-x86 seabios"; \
	command -v debootstrap >/dev/null || need="$$need debootstrap"; \
	if [ -n "$$need" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$need; fi

# Any Go from 1.21 on fetches the toolchain that go.mod names.
.PHONY: deps-go
deps-go:
	@command -v $(GO) >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends golang-go; }
