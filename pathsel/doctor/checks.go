package doctor

// families are all checks, by what they are about. A new check is a variable of type Check with
// its function in the file of its family (check_*.go), a line here, and a case in cases_test.go;
// "go test ./pathsel/doctor -update" then writes it into docs/doctor.md. The function goes through
// the devices that the check is about and says of each what is known: see outcome in report.go.
var families = []struct {
	name   string
	checks []*Check
}{
	{"PCIe links", []*Check{&linkDegraded, &linkDisagrees, &implausibleBridgeLink}},
	{"NIC slots", []*Check{&nicSlotLimited, &sharedSlot, &rdmaNoPCI}},
	{"GPU links", []*Check{&nvlinkMissing, &nvlinkUneven, &p2pDisabled, &migEnabled}},
	{"NICs and GPU memory", []*Check{
		&gpuDriverMissing, &noGDRPath, &iommuTranslate, &memlock, &registrationRefused, &acsRedirect,
	}},
	{"RDMA ports", []*Check{&portDown, &noUsablePort, &uverbsInaccessible, &rdmaLAG, &pfAndVFVisible, &softwareRDMA}},
	{"RoCE and InfiniBand settings", []*Check{
		&gidIndexWrong, &gidMissing, &gidNoneRoutable, &gidIndexDiffers, &trafficClassUnset, &mtuMismatch,
		&mtuSmall, &mtuActive, &mtuPeer, &pkeyMismatch,
	}},
	{"Rails", []*Check{&rateMismatch, &mixedLinkLayer, &firmwareDiffers, &railsShareSubnet}},
	{"GPUs and their NICs", []*Check{&gpuWithoutNearNIC, &gpuNICIndex, &c2cPath, &nicRole, &dpu}},
	{"Sharing NICs", []*Check{&nicUnassigned, &nicOversubscribed}},
	{"NUMA", []*Check{&numaUnknown, &asymmetricSockets}},
	{"What can be seen", []*Check{&vmFlat, &partialView, &factsUnread, &factsConflict}},
}

// Checks lists all checks by family.
func Checks() []Check {
	var out []Check
	for _, f := range families {
		for _, c := range f.checks {
			check := *c
			check.Family = f.name
			out = append(out, check)
		}
	}
	return out
}
