# Everything here is one command of the README or of .ci/run with a short name.
.PHONY: build test bench ci lint fuzz golden lab

# -z lazy: go-nvml's calls are looked up when they are made, so that a machine
# without the driver can start the program.
build:
	go build -trimpath -ldflags '-s -w -extldflags=-Wl,-z,lazy' -o bin/topoctl ./cmd/topoctl

test:
	go test ./...

bench:
	./.ci/bench

fuzz:
	./.ci/fuzz 10s

lint:
	./.ci/lint

# Suites in virtual machines with RDMA devices: docs/lab.md.
lab:
	./.ci/lab

golden:
	go test ./discover/topo ./internal/app/draw ./internal/app/diagram ./internal/base/hosttree/machine ./pathsel/... ./cmd/topoctl/... -update

ci:
	./.ci/run
