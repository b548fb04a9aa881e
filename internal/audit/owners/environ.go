package owners

import (
	"bytes"
	"slices"
	"strings"
)

// The limits of what a process's variables may take.
const (
	maxVariables = 128
	maxValue     = 1024 // bytes
)

// prefixes are those of variables that say which ports or transports an engine uses, by the first
// engine in Engines that has them.
// Source: the lists of variables in NCCL's user guide, UCX's FAQ (ucx_info -cf), NVSHMEM's guide,
// Mooncake's docs/source/deployment, vLLM's and SGLang's environment variables.
var prefixes = []string{
	"NCCL_IB_", "NCCL_NET", "NCCL_SOCKET_", "NCCL_CROSS_NIC", "NCCL_TOPO_FILE", "NCCL_ALGO", "NCCL_P2P_", "NCCL_NIC_", "NCCL_GIN_",
	"RCCL_", "UCX_NET_DEVICES", "UCX_TLS", "UCX_IB_", "UCX_RC_", "UCX_TCP_", "UCX_MAX_RNDV_RAILS", "UCX_MAX_EAGER_RAILS", "UCX_MULTI_PATH",
	"MC_", "MOONCAKE_", "VLLM_MOONCAKE_", "VLLM_NIXL_", "SGLANG_MOONCAKE_", "SGLANG_DISAGGREGATION_", "NIXL_", "NVSHMEM_", "FI_", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME",
	"OMPI_MCA_btl_tcp_if_", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LOCAL_RANK",
}

// secrets are parts of names whose values are not kept, whatever the name begins with.
var secrets = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "AUTH"}

// parseEnviron reads the variables that matter from a process's /proc/PID/environ.
func parseEnviron(data []byte) map[string]string {
	out := map[string]string{}
	for item := range bytes.SplitSeq(data, []byte{0}) {
		name, value, ok := strings.Cut(string(item), "=")
		if !ok || !wanted(name) || len(out) == maxVariables {
			continue
		}
		if _, twice := out[name]; !twice { // what getenv gives is the first
			out[name] = value[:min(len(value), maxValue)]
		}
	}
	return out
}

// wanted says whether a variable says which ports or transports an engine uses.
func wanted(name string) bool {
	if slices.ContainsFunc(secrets, func(part string) bool { return strings.Contains(name, part) }) {
		return false
	}
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// engaged are the variables without which a process of no engine is not listed: the others also
// stand where nothing is moved.
func engaged(variables map[string]string) bool {
	for name := range variables {
		switch name {
		case "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LOCAL_RANK":
		default:
			return true
		}
	}
	return false
}
