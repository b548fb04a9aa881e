// A stand-in for libnvidia-ml.so.1. It answers from the text file that the
// environment variable FAKE_NVML names, lines of "KEY VALUE": a key such as
// "count" or "gpu0.uuid". A key that is not there is "not supported", and a
// value "!N" is the return code N; "hang" never returns. With -DOLD it lacks the
// functions that drivers before R450 lack.
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "nvml.h"

static char value[512];

static nvmlReturn_t find(const char *key) {
	const char *path = getenv("FAKE_NVML");
	FILE *f = path ? fopen(path, "r") : NULL;
	char line[640];
	size_t n = strlen(key);
	if (!f) return NVML_ERROR_DRIVER_NOT_LOADED;
	nvmlReturn_t ret = NVML_ERROR_NOT_SUPPORTED;
	while (ret == NVML_ERROR_NOT_SUPPORTED && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		if (strncmp(line, key, n) == 0 && line[n] == ' ') {
			snprintf(value, sizeof value, "%s", line + n + 1);
			ret = value[0] == '!' ? (nvmlReturn_t)atoi(value + 1) : NVML_SUCCESS;
		}
	}
	fclose(f);
	if (ret == NVML_SUCCESS && strcmp(value, "hang") == 0) for (;;) pause();
	return ret;
}

// MIG devices have the names gpu0.mig1, so that their keys are gpu0.mig1.uuid.
static nvmlReturn_t get(nvmlDevice_t d, const char *what, int sub) {
	char key[128];
	long h = (long)d.handle - 1, mig = h / 1000;
	int n = snprintf(key, sizeof key, "gpu%ld", h % 1000);
	if (mig) n += snprintf(key + n, sizeof key - n, ".mig%ld", mig - 1);
	n += snprintf(key + n, sizeof key - n, ".%s", what);
	if (sub >= 0) snprintf(key + n, sizeof key - n, "%d", sub);
	return find(key);
}

static nvmlReturn_t text(nvmlReturn_t r, char *out, unsigned int len) {
	if (r == NVML_SUCCESS) snprintf(out, len, "%s", value);
	return r;
}

static nvmlReturn_t num(nvmlReturn_t r, unsigned int *out) {
	if (r == NVML_SUCCESS) *out = (unsigned int)strtoul(value, NULL, 0);
	return r;
}

static nvmlReturn_t pci(nvmlReturn_t r, nvmlPciInfo_t *p) {
	if (r != NVML_SUCCESS) return r;
	memset(p, 0, sizeof *p);
	sscanf(value, "%x:%x:%x", &p->domain, &p->bus, &p->device);
	snprintf(p->busId, sizeof p->busId, "%08X:%02X:%02X.0", p->domain, p->bus, p->device);
	return r;
}

nvmlReturn_t nvmlInit_v2(void) { return find("init"); }
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t r) { return r == NVML_ERROR_GPU_IS_LOST ? "GPU is lost" : "some error"; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *v, unsigned int n) { return text(find("driver"), v, n); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *v, unsigned int n) { return text(find("nvml"), v, n); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *v) { return num(find("cuda"), (unsigned int *)v); }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) { return num(find("count"), n); }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int i, nvmlDevice_t *d) {
	d->handle = (void *)(long)(i + 1);
	nvmlReturn_t r = get(*d, "handle", -1);
	return r == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : r;
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) { return pci(get(d, "pci", -1), p); }
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *s, unsigned int n) { return text(get(d, "uuid", -1), s, n); }
nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t d, char *s, unsigned int n) { return text(get(d, "serial", -1), s, n); }
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *s, unsigned int n) { return text(get(d, "name", -1), s, n); }
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned int *n) { return num(get(d, "minor", -1), n); }
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
	nvmlReturn_t r = get(d, "memory", -1);
	if (r != NVML_SUCCESS) return r;
	m->total = strtoull(value, NULL, 0);
	m->used = get(d, "used", -1) == NVML_SUCCESS ? strtoull(value, NULL, 0) + 1000 : 0; // what the driver keeps
	return r;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) {
	u->memory = 0;
	return num(get(d, "utilization", -1), &u->gpu);
}
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t c, unsigned int *v) {
	return num(get(d, c == NVML_PCIE_UTIL_TX_BYTES ? "pcietx" : "pcierx", -1), v);
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor) {
	nvmlReturn_t r = get(d, "capability", -1);
	if (r == NVML_SUCCESS) sscanf(value, "%d.%d", major, minor);
	return r;
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t d, unsigned int *n) { return num(get(d, "gen", -1), n); }
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t d, unsigned int *n) { return num(get(d, "width", -1), n); }
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t d, unsigned int *n) { return num(get(d, "maxgen", -1), n); }
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, unsigned int *n) { return num(get(d, "maxwidth", -1), n); }
nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t d, unsigned int n, unsigned long *set) {
	nvmlReturn_t r = get(d, "cpus", -1); // the lowest two words
	if (r != NVML_SUCCESS) return r;
	memset(set, 0, n * sizeof *set);
	if (n >= 2) sscanf(value, "%lx %lx", &set[0], &set[1]);
	return r;
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned int l, nvmlEnableState_t *s) { return num(get(d, "link", l), (unsigned int *)s); }
nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t d, unsigned int l, unsigned int *v) { return num(get(d, "linkversion", l), v); }
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned int l, nvmlPciInfo_t *p) { return pci(get(d, "linkpci", l), p); }
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t d, nvmlDevice_t e, nvmlGpuP2PCapsIndex_t i, nvmlGpuP2PStatus_t *s) {
	return num(get(d, "p2p", (int)((long)e.handle - 1)), (unsigned int *)s);
}

#ifndef OLD
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
	if (m->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlReturn_t r = get(d, "memory", -1);
	if (r != NVML_SUCCESS) return r;
	m->total = strtoull(value, NULL, 0);
	m->used = get(d, "used", -1) == NVML_SUCCESS ? strtoull(value, NULL, 0) : 0;
	return r;
}
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, unsigned int n, unsigned long *set, nvmlAffinityScope_t s) {
	unsigned int node;
	nvmlReturn_t r = num(get(d, "cpunuma", -1), &node);
	if (r != NVML_SUCCESS) return r;
	memset(set, 0, n * sizeof *set);
	set[node / 64] = 1ul << node % 64;
	return r;
}
nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t d, unsigned int *n) { return num(get(d, "numa", -1), n); }
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned int l, nvmlIntNvLinkDeviceType_t *t) {
	return num(get(d, "linktype", l), (unsigned int *)t);
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned int *cur, unsigned int *next) { *next = 0; return num(get(d, "mig", -1), cur); }
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned int *n) { return num(get(d, "maxmig", -1), n); }
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned int i, nvmlDevice_t *m) {
	m->handle = (void *)((long)d.handle + 1000 * (long)(i + 1));
	return get(*m, "uuid", -1) == NVML_SUCCESS ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *v) {
	for (int i = 0; i < n; i++) {
		char what[32];
		if (v[i].scopeId == ~0u) { // all links
			snprintf(what, sizeof what, "field%u.all", v[i].fieldId);
			v[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
			v[i].nvmlReturn = get(d, what, -1);
			if (v[i].nvmlReturn == NVML_SUCCESS) v[i].value.ullVal = strtoull(value, NULL, 0);
			continue;
		}
		snprintf(what, sizeof what, "field%u.", v[i].fieldId);
		v[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		v[i].nvmlReturn = num(get(d, what, (int)v[i].scopeId), &v[i].value.uiVal);
	}
	return NVML_SUCCESS;
}
#endif
