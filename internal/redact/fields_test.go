package redact

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/discover/topo"
)

// TestRedactorKnowsEveryField: each string of the model is either a secret, or
// listed here because it says nothing about whose machine it is. A new field
// must be put into one of the two.
func TestRedactorKnowsEveryField(t *testing.T) {
	const harmless = `
		Address.Scope
		Bond.ActiveLeg Bond.HashPolicy Bond.Mode
		Derived.Rules
		Fact.Name
		GID.Netdev GID.Type
		GPU.CPUAffinity GPU.ComputeCap GPU.Driver GPU.KnownFrom GPU.Model GPU.Name GPU.P2P GPU.Vendor
		GPUReport.CUDAVersion GPUReport.DriverVersion GPUReport.NVMLVersion GPUReport.Schema
		Host.AllowedCPUs Host.Arch Host.CPUModel Host.CPUVendor Host.CPUs Host.Fingerprint Host.GPUDriver Host.Kernel
		Host.Product Host.Vendor Host.Virtual
		Link.Encap Link.Kind Link.Name Link.OperState Link.ParentBus Link.ParentDev
		MIGInstance.Profile
		NIC.Model
		NUMANode.CPUs
		NVLink.RemoteType
		NVMe.Model NVMe.Name NVMe.Namespaces
		Netdev.Driver Netdev.LinkKind Netdev.Lower Netdev.Master Netdev.Name Netdev.PhysPort Netdev.State Netdev.Type
		NetlinkReport.Schema
		PCIDevice.ATS PCIDevice.DeviceName PCIDevice.Driver PCIDevice.IOMMUType PCIDevice.LocalCPUs PCIDevice.VendorName
		PCILink.RawMaxSpeed PCILink.RawSpeed
		Package.CPUs Package.Model
		Port.LinkLayer Port.Netdevs Port.PhysState Port.RateRaw Port.State
		RDMA.Firmware RDMA.Name
		RDMADevice.Board RDMADevice.CharDevs RDMADevice.Driver RDMADevice.Firmware RDMADevice.HCAType RDMADevice.Name
		RDMADevice.Netdevs RDMADevice.NodeType RDMADevice.Transport RDMADevice.Uverbs
		Setting.Name Setting.Value Setting.Where
		Software.GPUModule Software.KernelOptions Software.Modules
		Switch.Name
		Tool.Name Tool.Version
		Topology.Origin`
	fields := make(map[string]bool)
	for _, v := range []any{topo.Topology{}, replies.GPUReport{}, replies.NetlinkReport{}} {
		stringFields(reflect.TypeOf(v), fields)
	}
	for name := range secrets {
		if !fields[name] {
			t.Errorf("secrets names %s, which the model does not have", name)
		}
		delete(fields, name)
	}
	want := strings.Fields(harmless)
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(fields))); diff != "" {
		t.Errorf("secret or harmless? (-listed +found)\n%s", diff)
	}
}

// stringFields collects the names of the fields that hold text.
func stringFields(t reflect.Type, fields map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		stringFields(t.Elem(), fields)
	case reflect.Struct:
		for f := range t.Fields() {
			if !f.IsExported() {
				continue
			}
			e := f.Type
			for e.Kind() == reflect.Pointer || e.Kind() == reflect.Slice || e.Kind() == reflect.Map {
				e = e.Elem()
			}
			if e == reflect.TypeFor[string]() {
				fields[t.Name()+"."+f.Name] = true
			} else {
				stringFields(e, fields)
			}
		}
	}
}
