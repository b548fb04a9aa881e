//go:build linux && cgo && !nonvml

package nvml

import (
	"encoding/binary"
	"strings"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
)

// maxCPUs and maxNodes size the sets that NVML fills; go-nvml makes them eight
// times as large.
const (
	maxCPUs  = 1024
	maxNodes = 128
)

// maxMIG bounds the MIG devices of a GPU (7 in 2026).
const maxMIG = 64

func (g *gpu) cpuAffinity() string {
	set, _ := ask(g, "nvmlDeviceGetCpuAffinity", func() ([]uint, gonvml.Return) { return g.dev.GetCpuAffinity(maxCPUs) })
	return cpuset.FromWords(set).String()
}

// cpuNUMA is the NUMA node whose memory is near, nil where it is not one.
func (g *gpu) cpuNUMA() *int {
	set, _ := ask(g, "nvmlDeviceGetMemoryAffinity", func() ([]uint, gonvml.Return) {
		return g.dev.GetMemoryAffinity(maxNodes, gonvml.AFFINITY_SCOPE_NODE)
	})
	if nodes := cpuset.FromWords(set); nodes.Len() == 1 {
		return new(nodes.First())
	}
	return nil
}

// mig asks for the GPU's partitions, nil for a GPU that cannot have any.
func (g *gpu) mig() *topo.MIG {
	mode := number(g, "nvmlDeviceGetMigMode", func() (int, gonvml.Return) {
		current, _, ret := g.dev.GetMigMode()
		return current, ret
	})
	if mode == nil {
		return nil
	}
	m := &topo.MIG{Enabled: *mode == gonvml.DEVICE_MIG_ENABLE}
	count := number(g, "nvmlDeviceGetMaxMigDeviceCount", g.dev.GetMaxMigDeviceCount)
	if !m.Enabled || count == nil {
		return m
	}
	for i := range min(*count, maxMIG) {
		part, ok := ask(g, "nvmlDeviceGetMigDeviceHandleByIndex", func() (gonvml.Device, gonvml.Return) {
			return g.dev.GetMigDeviceHandleByIndex(i)
		})
		if !ok {
			continue
		}
		in := topo.MIGInstance{UUID: text1(g, "nvmlDeviceGetUUID", part.GetUUID)}
		// "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
		if _, profile, ok := strings.Cut(text1(g, "nvmlDeviceGetName", part.GetName), " MIG "); ok {
			in.Profile = profile
		}
		if m, ok := ask(g, "nvmlDeviceGetMemoryInfo", part.GetMemoryInfo); ok && m.Total > 0 && m.Total < 1<<60 {
			total := int64(m.Total)
			in.MemoryBytes = &total
		}
		m.Instances = append(m.Instances, in)
	}
	return m
}

// nvlinks asks for every NVLink that the driver knows of.
func (g *gpu) nvlinks() []replies.NVLink {
	var links []replies.NVLink
	for i := range gonvml.NVLINK_MAX_LINKS {
		state, ok := ask(g, "nvmlDeviceGetNvLinkState", func() (gonvml.EnableState, gonvml.Return) { return g.dev.GetNvLinkState(i) })
		if !ok {
			continue
		}
		l := replies.NVLink{Link: i, Active: state == gonvml.FEATURE_ENABLED}
		if l.Active {
			g.farEnd(&l)
		}
		links = append(links, l)
	}
	return links
}

// farEnd asks where an active link leads.
func (g *gpu) farEnd(l *replies.NVLink) {
	kind, ok := ask(g, "nvmlDeviceGetNvLinkRemoteDeviceType", func() (gonvml.IntNvLinkDeviceType, gonvml.Return) {
		return g.dev.GetNvLinkRemoteDeviceType(l.Link)
	})
	if ok {
		l.RemoteType = remoteTypes[kind]
	}
	remote, ok := ask(g, "nvmlDeviceGetNvLinkRemotePciInfo_v2", func() (gonvml.PciInfo, gonvml.Return) {
		return g.dev.GetNvLinkRemotePciInfo(l.Link)
	})
	if ok {
		l.RemoteBDF = address(remote)
	}
	l.Version = number(g, "nvmlDeviceGetNvLinkVersion", func() (int, gonvml.Return) {
		v, ret := g.dev.GetNvLinkVersion(l.Link)
		return int(v), ret
	})
}

var remoteTypes = map[gonvml.IntNvLinkDeviceType]string{
	gonvml.NVLINK_DEVICE_TYPE_GPU:    "gpu",
	gonvml.NVLINK_DEVICE_TYPE_IBMNPU: "cpu",
	gonvml.NVLINK_DEVICE_TYPE_SWITCH: "switch",
}

// maxC2C bounds the C2C links of a GPU (10 on GH200).
const maxC2C = 64

// c2c asks for the GPU's NVLink-C2C: the links that are active, and what they
// carry together.
// Source: nvml.h, NVML_FI_DEV_C2C_LINK_*; the speed is in MB/s for each link.
func (g *gpu) c2c() *replies.C2C {
	count, ok := g.field(gonvml.FI_DEV_C2C_LINK_COUNT, 0)
	if !ok || count == 0 || count > maxC2C {
		return nil
	}
	c := &replies.C2C{}
	var sum topo.Rate
	for i := range uint32(count) {
		if up, ok := g.field(gonvml.FI_DEV_C2C_LINK_GET_STATUS, i); !ok || up != 1 {
			continue
		}
		c.Links++
		if speed, ok := g.field(gonvml.FI_DEV_C2C_LINK_GET_MAX_BW, i); ok && speed < 1<<32 {
			sum += topo.Rate(speed) * topo.MBPerSec
		}
	}
	if c.Links == 0 {
		return nil
	}
	if sum > 0 {
		c.BytesPerSec = &sum
	}
	return c
}

// field asks for one unsigned field value.
func (g *gpu) field(id, scope uint32) (uint64, bool) {
	values, ok := ask(g, "nvmlDeviceGetFieldValues", func() ([]gonvml.FieldValue, gonvml.Return) {
		v := []gonvml.FieldValue{{FieldId: id, ScopeId: scope}}
		return v, g.dev.GetFieldValues(v)
	})
	if !ok || gonvml.Return(values[0].NvmlReturn) != gonvml.SUCCESS {
		return 0, false
	}
	raw := values[0].Value[:]
	switch gonvml.ValueType(values[0].ValueType) {
	case gonvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(raw)), true
	case gonvml.VALUE_TYPE_UNSIGNED_SHORT:
		return uint64(binary.NativeEndian.Uint16(raw)), true
	case gonvml.VALUE_TYPE_UNSIGNED_LONG, gonvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(raw), true
	}
	return 0, false
}

// p2pReasons are the driver's reasons against peer access, in words.
// Source: nvml.h, nvmlGpuP2PStatus_t.
var p2pReasons = map[gonvml.GpuP2PStatus]string{
	gonvml.P2P_STATUS_OK:                         "ok",
	gonvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED:      "chipset not supported",
	gonvml.P2P_STATUS_GPU_NOT_SUPPORTED:          "gpu not supported",
	gonvml.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: "topology not supported",
	gonvml.P2P_STATUS_DISABLED_BY_REGKEY:         "disabled by registry key",
	gonvml.P2P_STATUS_NOT_SUPPORTED:              "not supported",
}

// peers asks for read access to each other GPU.
func (g *gpu) peers(gpus []*gpu) map[int]string {
	var peers map[int]string
	for _, other := range gpus {
		if other == g || other.lost {
			continue
		}
		status, ok := ask(g, "nvmlDeviceGetP2PStatus", func() (gonvml.GpuP2PStatus, gonvml.Return) {
			return g.dev.GetP2PStatus(other.dev, gonvml.P2P_CAPS_INDEX_READ)
		})
		reason, known := p2pReasons[status]
		if !ok || !known {
			continue
		}
		if peers == nil {
			peers = map[int]string{}
		}
		peers[other.index] = reason
	}
	return peers
}
