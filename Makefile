# Short names for the commands that are used most.
.PHONY: build lib lib-arm64 wheel release image test bench ci lint fuzz golden lab gpu

# -z lazy: go-nvml's calls are looked up when they are made, so that a machine
# without the driver can start the program.
# -X: what "topoctl version" says; Go's own stamp would be a pseudo-version.
stamps = github.com/topoctl/topoctl/internal/build
version = $(shell ./.ci/version 2>/dev/null)
commit = $(shell git rev-parse HEAD 2>/dev/null)
program = bin/topoctl

build:
	go build -trimpath -ldflags '-s -w -extldflags=-Wl,-z,lazy -X $(stamps).stampedVersion=$(version) -X $(stamps).stampedCommit=$(commit)' -o $(program) ./cmd/topoctl

# bin/libtopoctl.so, the C library: docs/c-api.md; lib-arm64: bin/arm64/libtopoctl.so.
lib: what = build
lib-arm64: what = arm64
lib lib-arm64:
	STAMPS='-X $(stamps).stampedVersion=$(version) -X $(stamps).stampedCommit=$(commit)' ./.ci/lib $(what)

# The Python package with library and program in it, bin/topoctl-*.whl: docs/python.md. Wants
# python3 with pip, and a package registry for what builds wheels.
wheel: build lib
	rm -f bin/topoctl-*.whl
	python3 -m pip wheel -q --no-deps --wheel-dir bin ./python

# What others install, in bin/release: docs/release.md.
release:
	./.ci/release

# The container image of what release built, beside it: docs/containers.md.
image:
	./.ci/image

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
	bin/topoctl bench --transport tcp --size 4KiB --batch 128 --in-flight 2 --duration $(time)
	bin/topoctl bench --transport tcp --size 4KiB --batch 1 --in-flight 1 --duration $(time)
	-iperf3 -s -1 -D -p 17311 && sleep 0.5 && iperf3 -c 127.0.0.1 -p 17311 -l 1M -C cubic -t 4
	uptime

fuzz:
	./.ci/fuzz 10s

lint:
	./.ci/lint

# Suites in virtual machines with RDMA devices: docs/lab.md.
lab:
	./.ci/lab

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
