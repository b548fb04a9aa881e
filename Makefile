# Short names for the commands that are used most.
.PHONY: build lib lib-arm64 wheel release image test bench ci lint fuzz golden lab gpu

# -X: what "topoctl version" says; Go's own stamp would be a pseudo-version.
package = github.com/topoctl/topoctl/internal/build
stamp = -s -w -X $(package).stampedVersion=$(shell ./.ci/version 2>/dev/null) -X $(package).stampedCommit=$(shell git rev-parse HEAD 2>/dev/null)
dir = bin

# -z lazy: go-nvml's calls are looked up when they are made, so that a machine
# without the driver can start the program.
build:
	go build -trimpath -ldflags '$(stamp) -extldflags=-Wl,-z,lazy' -o $(dir)/topoctl ./cmd/topoctl

# The C library, beside which pkg-config finds it: docs/c-api.md. Without a build ID, which would tell in which folder it was built (-version-script), and
# without gRPC's pages about its calls, which no one could open. The header that cgo writes is not the interface.
soname = libtopoctl.so.$(shell sed -n 's/^.define TOPOCTL_ABI //p' cmd/libtopoctl/topoctl.h)
lib:
	CGO_ENABLED=1 go build -tags nonvml,grpcnotrace -trimpath -buildmode=c-shared -o $(dir)/$(soname) -ldflags "$(stamp) -buildid= \
		-extldflags '-Wl,--version-script=$(CURDIR)/cmd/libtopoctl/exports.map -Wl,-z,now -Wl,-soname,$(soname)'" ./cmd/libtopoctl
	rm -f $(dir)/libtopoctl.so.h
	ln -sf $(soname) $(dir)/libtopoctl.so
	install -D -m 644 -t $(dir)/include cmd/libtopoctl/topoctl.h
	sed 's|@PREFIX@|$${pcfiledir}|;s|@LIBDIR@|$${prefix} -Wl,-rpath,$${prefix}|;s|@VERSION@|$(or $(shell ./.ci/version 2>/dev/null),0)|' \
		.ci/package/topoctl.pc >$(dir)/topoctl.pc
	./.ci/lib check $(dir)/libtopoctl.so

# With Debian's gcc-aarch64-linux-gnu and libc6-dev-arm64-cross.
lib-arm64:
	$(MAKE) lib dir=bin/arm64 GOARCH=arm64 CC=aarch64-linux-gnu-gcc

# The Python package with library and program in it, bin/topoctl-*.whl: docs/python.md. Wants
# python3 with pip, and a package registry for what builds wheels.
wheel: build lib
	rm -f bin/topoctl-*.whl
	python3 -m pip wheel -q --no-deps --wheel-dir bin ./python

# What others install, in bin/release: docs/release.md.
release:
	./.ci/release

# The same, and the container images: docs/containers.md.
image:
	./.ci/release archives packages wheels sbom image

test:
	go test ./...

# What a figure is compared with is measured in turn with it, and their ratio is a metric of the same line;
# docs/performance.md has the goals. No figure fails.
time = 2s
rounds = 7x
benchmark = go test -run '^$$' -benchtime
bench: build
	uptime
	$(benchmark) $(time) -bench 'ReadAndMerge|Encode|Derive|Version' ./cmd/topoctl
	$(benchmark) 1x -bench CommandAgainstHwloc ./cmd/topoctl
	$(benchmark) $(time) -bench 'Affinity|Plan$$|Lanes|Pick|Connect' ./pathsel
	$(benchmark) $(time) -bench 'Slice|Cut' ./internal/sched
	$(benchmark) $(time) -bench 'Copy|Pin' ./engine/internal/memory
	$(benchmark) $(time) -bench 'Write|TwoWorkers' ./engine/internal/transport/shm
	$(benchmark) $(rounds) -bench 'Stream|Latency|Protection' ./engine/internal/transport/tcp
	$(benchmark) $(time) -bench Guard ./engine/internal/transport/tcp
	$(dir)/topoctl bench --transport tcp --size 4KiB --batch 128 --in-flight 2 --duration $(time)
	$(dir)/topoctl bench --transport tcp --size 4KiB --batch 1 --in-flight 1 --duration $(time)
	-iperf3 -s -1 -D -p 17311 && sleep 0.5 && iperf3 -c 127.0.0.1 -p 17311 -l 1M -C cubic -t 4
	uptime

fuzz:
	./.ci/fuzz 10s

lint:
	./.ci/run lint

# Suites in virtual machines with RDMA devices: docs/lab.md.
lab:
	go run ./test/vmlab/cmd/vmlab

# What only a machine with a GPU can show: docs/hardware.md. The archive has all it needs there (x86-64 Linux, glibc
# 2.34, NVIDIA's driver; neither Go nor a network), and 40 MB at most can be carried. Where there is a GPU, it runs.
gpu:
	rm -rf build
	mkdir -p build/gpu
	go build -trimpath -ldflags '-s -w -extldflags=-Wl,-z,lazy' -o build/gpu/ ./cmd/topoctl ./engine/internal/gpucheck
	go test -c -trimpath -ldflags '-s -w' -o build/gpu/ ./engine/internal/transport/tcp ./engine/internal/transport/shm
	gcc -O2 -o build/gpu/copyloop engine/internal/gpucheck/testdata/copyloop.c -ldl
	cp engine/internal/gpucheck/tensors.py build/gpu
	tar -czf build/gpu.tar.gz -C build gpu
	[ $$(stat -c %s build/gpu.tar.gz) -le 40000000 ]
	@echo "build/gpu.tar.gz: $$(stat -c %s build/gpu.tar.gz) bytes. On the machine with the GPU:"
	@echo "    tar -xzf build/gpu.tar.gz -C /tmp && /tmp/gpu/gpucheck -out RESULTS"
	@if [ -e /proc/driver/nvidia/version ]; then build/gpu/gpucheck -out build/results; else echo "this machine has no NVIDIA driver: nothing was run"; fi

golden:
	go test $$(git grep -l testkit/golden -- '*_test.go' | xargs -n1 dirname | sort -u | sed "s,^,./,") -update

ci:
	./.ci/run
