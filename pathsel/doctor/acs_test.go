package doctor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// acsText writes the text of lspci -vvv of functions, one a line: address, kind, secondary and last bus or -, ACS
// control register or -, ATS or -, IOMMU group or -, driver.
func acsText(lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		kind := map[string]struct{ name, port string }{
			"root":  {"PCI bridge [0604]: Advanced Micro Devices, Inc. [AMD] GPP Bridge [1022:1483]", "Root Port (Slot+)"},
			"vera":  {"PCI bridge [0604]: NVIDIA Corporation Root Port [10de:22b2]", "Root Port (Slot+)"},
			"cxup":  {"PCI bridge [0604]: Mellanox Technologies ConnectX-8 Switch [15b3:197c]", "Upstream Port"},
			"cx":    {"PCI bridge [0604]: Mellanox Technologies ConnectX-8 Switch [15b3:197c]", "Downstream Port (Slot-)"},
			"plxup": {"PCI bridge [0604]: Broadcom / LSI PEX890xx [1000:c030]", "Upstream Port"},
			"plx":   {"PCI bridge [0604]: Broadcom / LSI PEX890xx [1000:c030]", "Downstream Port (Slot-)"},
			"nic":   {"Infiniband controller [0207]: Mellanox Technologies ConnectX-8 [15b3:1023]", "Endpoint"},
			"dma":   {"DMA controller [0801]: Mellanox Technologies ConnectX-8 Data Direct Interface [15b3:2100]", "Endpoint"},
			"gpu":   {"3D controller [0302]: NVIDIA Corporation GB202 [RTX PRO 6000] [10de:2bb5]", "Endpoint"},
		}[f[1]]
		fmt.Fprintf(&b, "%s %s\n\tControl: I/O-\n\tNUMA node: 0\n", f[0], kind.name)
		if f[2] != "-" {
			fmt.Fprintf(&b, "\tBus: primary=%s, secondary=%s, subordinate=%s, sec-latency=0\n", f[0][5:7], f[2], f[3])
		}
		if f[6] != "-" {
			fmt.Fprintf(&b, "\tIOMMU group: %s\n", f[6])
		}
		fmt.Fprintf(&b, "\tCapabilities: [60] Express (v2) %s, MSI 00\n", kind.port)
		if f[5] != "blind" {
			b.WriteString("\tCapabilities: [100 v2] Advanced Error Reporting\n")
		}
		if f[4] != "-" {
			var control uint
			if _, err := fmt.Sscanf(f[4], "%v", &control); err != nil {
				panic(err)
			}
			b.WriteString("\tCapabilities: [200 v1] Access Control Services\n\t\tACSCtl:\t")
			for i, bit := range []string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"} {
				fmt.Fprintf(&b, "%s%c ", bit, "-+"[control>>i&1])
			}
			b.WriteString("\n")
		}
		if f[5] == "+" || f[5] == "off" {
			fmt.Fprintf(&b, "\tCapabilities: [300 v1] Address Translation Service (ATS)\n\t\tATSCtl:\tEnable%s, Smallest Translation Unit: 00\n", map[bool]string{true: "+", false: "-"}[f[5] == "+"])
		}
		fmt.Fprintf(&b, "\tKernel driver in use: %s\n\n", f[7])
	}
	return b.String()
}

func acsHost(lines string) machine {
	return func(tb testing.TB) *topo.Topology {
		tb.Helper()
		t, err := texts.Decode([]byte(acsText(lines)))
		if err != nil {
			tb.Fatal(err)
		}
		return t
	}
}

// inline is a board whose GPU and NIC hang from the switch inside the NIC: ACS of the NIC's and the GPU's port, ATS of
// the NIC, driver of the GPU. The layout and the settings follow the published rules of rdma_topo (rdma-core).
func inline(nicPort, gpuPort, ats, driver string) machine {
	return acsHost(strings.NewReplacer("NICPORT", nicPort, "GPUPORT", gpuPort, "ATS", ats, "DRIVER", driver).Replace(`
		0000:00:01.0 root  01 06 -       - 1 pcieport
		0000:01:00.0 cxup  02 06 -       - 1 pcieport
		0000:02:00.0 cx    03 03 NICPORT - 1 pcieport
		0000:03:00.0 nic   -  -  -       ATS 1 mlx5_core
		0000:02:01.0 cx    04 06 GPUPORT - 1 pcieport
		0000:04:00.0 cxup  05 06 -       - 1 pcieport
		0000:05:00.0 cx    06 06 0x00    - 1 pcieport
		0000:06:00.0 gpu   -  -  -       - 1 DRIVER`))
}

// direct is a GPU beside the data direct function of a NIC that hangs elsewhere.
func direct(dmaPort, gpuPort string) machine {
	return acsHost(strings.NewReplacer("DMAPORT", dmaPort, "GPUPORT", gpuPort).Replace(`
		0000:00:00.0 vera  01 03 0x1d    - - pcieport
		0000:01:00.0 cxup  02 03 -       - - pcieport
		0000:02:00.0 cx    03 03 0x1d    - - pcieport
		0000:03:00.0 nic   -  -  -       - 20 mlx5_core
		0010:00:00.0 vera  01 06 0x1c    - - pcieport
		0010:01:00.0 cxup  02 06 -       - - pcieport
		0010:02:00.0 cx    03 03 DMAPORT - - pcieport
		0010:03:00.0 dma   -  -  -       - 40 mlx5_core
		0010:02:03.0 cx    04 06 GPUPORT - - pcieport
		0010:04:00.0 cxup  05 06 -       - - pcieport
		0010:05:00.0 cx    06 06 0x1d    - - pcieport
		0010:06:00.0 gpu   -  -  -       - 40 nvidia`))
}

// plain is a switch of another vendor.
func plain(port, ats, driver string) machine {
	return acsHost(strings.NewReplacer("PORT", port, "ATS", ats, "DRIVER", driver).Replace(`
		0000:00:01.0 root  01 04 -    - 1 pcieport
		0000:01:00.0 plxup 02 04 -    - 1 pcieport
		0000:02:00.0 plx   03 03 PORT - 1 pcieport
		0000:03:00.0 nic   -  -  -    ATS 2 mlx5_core
		0000:02:01.0 plx   04 04 PORT - 1 pcieport
		0000:04:00.0 gpu   -  -  -    - 3 nvidia
		0000:00:02.0 root  05 05 -    - 4 pcieport
		0000:05:00.0 gpu   -  -  -    - 5 DRIVER`))
}

// apart are two devices below root ports of their own: ACS and IOMMU group of each side.
func apart(root, kind, port, group string) machine {
	return acsHost(strings.NewReplacer("ROOT", root, "PORT", port, "GROUP", group).Replace(`
		0000:40:03.1 ROOT  41 41 PORT - GROUP pcieport
		0000:41:00.0 gpu   -  -  -    - GROUP nvidia
		0000:60:03.1 ROOT  61 61 PORT - GROUP pcieport
		0000:61:00.0 ` + kind + ` - - - - GROUP nvidia`))
}

func TestACS(t *testing.T) {
	const code = "acs-redirect"
	for name, c := range map[string]struct {
		on       machine
		status   doctor.Status
		severity doctor.Severity
		says     string // in the finding, its fix or what is missing, in this order
		never    string
	}{
		"bare metal, redirected":        {inline("0x1d", "0x1d", "-", "nvidia"), doctor.Found, doctor.Error, "as bare metal needs it at 2 ports (0000:02:00.0 and 0000:02:01.0)|boot with pci=config_acs=xx000x0@0000:02:00.0;xx000x0@0000:02:01.0", ""},
		"bare metal, straight":          {inline("0x00", "0x00", "-", "nvidia"), doctor.OK, "", "as for bare metal", ""},
		"passthrough, right":            {inline("0x5d", "0x1d", "+", "nvidia"), doctor.OK, "", "as for passthrough", ""},
		"passthrough, ATS not on yet":   {inline("0x5d", "0x1d", "off", "nvidia"), doctor.OK, "", "as for passthrough", ""},
		"passthrough, not let through":  {inline("0x1d", "0x1d", "+", "nvidia"), doctor.Found, doctor.Warning, "at 1 port (0000:02:00.0)|pci=config_acs=1x111x1@0000:02:00.0 ", "xx000x0"},
		"ATS not read":                  {inline("0x1d", "0x1d", "blind", "nvidia"), doctor.CouldNotCheck, "", "bare metal wants xx000x0 at these ports, passthrough 1x111x1", ""},
		"no ATS, but a GPU for a guest": {inline("0x5d", "0x1d", "-", "vfio-pci"), doctor.CouldNotCheck, "", "bare metal wants xx000x0 at these ports, passthrough 1x111x1", ""},
		"data direct, right":            {direct("0x19", "0x15"), doctor.OK, "", "as for data direct", ""},
		"data direct, by the kernel":    {direct("0x1d", "0x1d"), doctor.Found, doctor.Warning, "gpu:0 and 0010:03:00.0|pci=config_acs=xx110x1@0010:02:00.0;xx101x1@0010:02:03.0", "xx000x0"},

		"a plain switch":                   {plain("0x1d", "-", "nvidia"), doctor.Found, doctor.Error, "ACS redirect is on at 2 switch ports|pci=disable_acs_redir=0000:02:00.0;0000:02:01.0 (Linux 4.19)|merges IOMMU groups", ""},
		"a plain switch beside a guest":    {plain("0x1d", "-", "vfio-pci"), doctor.Found, doctor.Warning, "bound to vfio", ""},
		"translated, ATS on":               {plain("0x5d", "+", "nvidia"), doctor.OK, "", "", ""},
		"translated, ATS off":              {plain("0x5d", "off", "nvidia"), doctor.Found, doctor.Warning, "not both devices use ATS", "nothing where"},
		"translated, ATS not known":        {plain("0x5d", "blind", "nvidia"), doctor.Found, doctor.Warning, "unless both devices use ATS, which is not known|nothing where lspci -vvv", ""},
		"root ports, groups":               {apart("root", "gpu", "0x1d", "7"), doctor.Found, doctor.Warning, "ACS redirect is on at 2 root ports (0000:40:03.1 and 0000:60:03.1): requests between gpu:0 and gpu:1 are redirected to the IOMMU there; both are in IOMMU groups|iommu=pt", ""},
		"root ports, a NIC":                {apart("root", "nic", "0x1d", "7"), doctor.Found, doctor.Warning, "gpu:0 and 0000:61:00.0", ""},
		"root ports without redirection":   {apart("root", "gpu", "0x01", "7"), doctor.OK, "", "2 ports", ""},
		"root ports, groups not known":     {apart("root", "gpu", "0x1d", "-"), doctor.CouldNotCheck, "", "whether an IOMMU translates", "no PCIe switch"},
		"root ports of NVIDIA's CPUs":      {apart("vera", "gpu", "0x1d", "7"), doctor.CouldNotCheck, "", "no PCIe switch is visible", ""},
		"root ports, it translates":        {edited(apart("root", "gpu", "0x1d", "7"), iommuType("DMA-FQ")), doctor.Found, doctor.Warning, "which translates", ""},
		"root ports, it passes addresses":  {edited(apart("root", "gpu", "0x1d", "7"), iommuType("identity")), doctor.CouldNotCheck, "", "no PCIe switch is visible", ""},
		"booted so that addresses pass":    {edited(apart("root", "gpu", "0x1d", "7"), func(t *topo.Topology) { t.Host.Software = &topo.Software{KernelOptions: []string{"iommu=pt"}} }), doctor.CouldNotCheck, "", "no PCIe switch is visible", ""},
		"the sockets have a root port too": {edited(apart("root", "gpu", "0x1d", "7"), otherSocket), doctor.CouldNotCheck, "", "no PCIe switch is visible", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := one(t, c.on, code)
			said := []string{r.Note}
			for _, f := range r.Findings {
				said = append(said, f.Text, f.Fix)
				if f.Severity != c.severity {
					t.Errorf("%s, want %s", f.Severity, c.severity)
				}
			}
			for _, m := range r.Missing {
				said = append(said, m.Text, m.How)
			}
			all := strings.Join(said, "\n")
			if r.Status != c.status {
				t.Errorf("%s, want %s", r.Status, c.status)
			}
			rest := all
			for _, want := range strings.Split(c.says, "|") {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Errorf("it does not say %q", want)
				}
				rest = after
			}
			for _, never := range []string{c.never, "setpci", "make sure that ATS is on"} {
				if never != "" && strings.Contains(all, never) {
					t.Errorf("it says %q", never)
				}
			}
			if t.Failed() {
				t.Logf("\n%s", all)
			}
		})
	}
}

func iommuType(kind string) func(*topo.Topology) {
	return func(t *topo.Topology) {
		for i := range t.PCIDevices {
			t.PCIDevices[i].IOMMUType = kind
		}
	}
}

// otherSocket puts the second GPU on another NUMA node.
func otherSocket(t *topo.Topology) {
	t.GPUs[1].NUMA = new(1)
	for i := range t.PCIDevices {
		if d := &t.PCIDevices[i]; d.BDF.Bus >= 0x60 {
			d.NUMA = new(1)
		}
	}
	for i := range t.HostBridges {
		if t.HostBridges[i].Bus >= 0x60 {
			t.HostBridges[i].NUMA = new(1)
		}
	}
	second := t.NUMANodes[0]
	second.ID, second.Index = topo.NUMAID(1), 1
	t.NUMANodes = append(t.NUMANodes, second)
}
