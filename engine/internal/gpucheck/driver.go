//go:build cgo && linux

package main

// #cgo LDFLAGS: -ldl
/*
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// What programs of users do with the driver and the engine does not: NVIDIA's documentation
// of the driver API has the signatures.
typedef struct { char data[64]; } ipc_handle; // CUipcMemHandle

static void *lib(void) { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }

// CALL declares a function pointer and finds the function.
#define CALL(name, args)                                 \
	int (*f_##name) args;                                \
	*(void **)&f_##name = dlsym(lib(), #name);           \
	if (!f_##name) return -1

// push makes the primary context of a device current. The engine holds the same one.
static int push(int ordinal) {
	CALL(cuDeviceGet, (int *, int));
	CALL(cuDevicePrimaryCtxRetain, (void **, int));
	CALL(cuCtxPushCurrent_v2, (void *));
	int device, r;
	void *ctx;
	if ((r = f_cuDeviceGet(&device, ordinal)) || (r = f_cuDevicePrimaryCtxRetain(&ctx, device))) return r;
	return f_cuCtxPushCurrent_v2(ctx);
}

static int pop(void) {
	CALL(cuCtxPopCurrent_v2, (void **));
	void *ctx;
	return f_cuCtxPopCurrent_v2(&ctx);
}

// A kernel of one instruction, which traps.
static const char ptx[] =
	".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry broken()\n{\n\ttrap;\n\tret;\n}\n";

static int run_broken(int ordinal) {
	CALL(cuModuleLoadData, (void **, const void *));
	CALL(cuModuleGetFunction, (void **, void *, const char *));
	CALL(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **));
	CALL(cuCtxSynchronize, (void));
	void *module, *function;
	int r = push(ordinal);
	if (r) return r;
	if (!(r = f_cuModuleLoadData(&module, ptx)) && !(r = f_cuModuleGetFunction(&function, module, "broken")))
		r = f_cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	if (!r) r = f_cuCtxSynchronize();
	pop();
	return r;
}

// open_memory maps memory of another process.
static int open_memory(int ordinal, const void *handle, uint64_t *address) {
	CALL(cuIpcOpenMemHandle_v2, (uint64_t *, ipc_handle, unsigned));
	ipc_handle h;
	memcpy(h.data, handle, sizeof h.data);
	int r = push(ordinal);
	if (r) return r;
	r = f_cuIpcOpenMemHandle_v2(address, h, 1); // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
	pop();
	return r;
}

static int close_memory(int ordinal, uint64_t address) {
	CALL(cuIpcCloseMemHandle, (uint64_t));
	int r = push(ordinal);
	if (r) return r;
	r = f_cuIpcCloseMemHandle(address);
	pop();
	return r;
}
*/
import "C"

import (
	"fmt"
	"runtime"

	"github.com/topoctl/topoctl/internal/cuda"
)

// breakContext runs a kernel that traps in this process's primary context of a GPU: the
// driver ends the context for good.
func breakContext(ordinal int) cuda.Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cuda.Result(C.run_broken(C.int(ordinal)))
}

// handleBytes is the size of a handle of memory that another process allocated.
const handleBytes = 64

// openMemory maps memory of another process, by a handle that it made.
func openMemory(ordinal int, handle []byte) (address uintptr, err error) {
	if len(handle) != handleBytes {
		return 0, fmt.Errorf("a handle of %d bytes, not %d", len(handle), handleBytes)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	data := C.CBytes(handle)
	defer C.free(data)
	var at C.uint64_t
	if r := C.open_memory(C.int(ordinal), data, &at); r != 0 {
		return 0, fmt.Errorf("cuIpcOpenMemHandle: %w", cuda.Result(r))
	}
	return uintptr(at), nil
}

func closeMemory(ordinal int, address uintptr) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if r := C.close_memory(C.int(ordinal), C.uint64_t(address)); r != 0 {
		return fmt.Errorf("cuIpcCloseMemHandle: %w", cuda.Result(r))
	}
	return nil
}
