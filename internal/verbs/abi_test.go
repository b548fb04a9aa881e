package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// realABI compiles testdata/abi.c with the real header and gives its lines.
func realABI(t *testing.T) []string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed: the real header cannot be compiled")
	}
	probe := exec.Command(cc, "-E", "-x", "c", "-o", os.DevNull, "-")
	probe.Stdin = strings.NewReader("#include <infiniband/verbs.h>\n")
	if err := probe.Run(); err != nil {
		t.Skip("<infiniband/verbs.h> is not installed (Debian: libibverbs-dev)")
	}
	bin := filepath.Join(t.TempDir(), "abi")
	// Nothing of the library is called, so it is not linked.
	out, err := exec.Command(cc, "-Wall", "-Werror", "-O1", "-I.", "-o", bin, "testdata/abi.c",
		"-Wl,--unresolved-symbols=ignore-all").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(lines)), "\n")
}

// The words of types.go by the ABI's names.
var words = map[string]uint64{
	"IBV_LINK_LAYER_INFINIBAND": uint64(LinkInfiniBand), "IBV_LINK_LAYER_ETHERNET": uint64(LinkEthernet),
	"IBV_PORT_DOWN": uint64(PortDown), "IBV_PORT_INIT": uint64(PortInit), "IBV_PORT_ARMED": uint64(PortArmed),
	"IBV_PORT_ACTIVE": uint64(PortActive), "IBV_MTU_256": 1, "IBV_MTU_4096": 5,
	"IBV_GID_TYPE_IB": uint64(GIDInfiniBand), "IBV_GID_TYPE_ROCE_V1": uint64(GIDRoCEv1), "IBV_GID_TYPE_ROCE_V2": uint64(GIDRoCEv2),
	"IBV_WC_SUCCESS": uint64(WCSuccess), "IBV_WC_LOC_LEN_ERR": uint64(WCLocalLength), "IBV_WC_LOC_QP_OP_ERR": uint64(WCLocalQPOp),
	"IBV_WC_LOC_PROT_ERR": uint64(WCLocalProt), "IBV_WC_WR_FLUSH_ERR": uint64(WCFlushed), "IBV_WC_BAD_RESP_ERR": uint64(WCBadResponse),
	"IBV_WC_LOC_ACCESS_ERR": uint64(WCLocalAccess), "IBV_WC_REM_INV_REQ_ERR": uint64(WCRemoteInvalid),
	"IBV_WC_REM_ACCESS_ERR": uint64(WCRemoteAccess), "IBV_WC_REM_OP_ERR": uint64(WCRemoteOp),
	"IBV_WC_RETRY_EXC_ERR": uint64(WCRetryExceeded), "IBV_WC_RNR_RETRY_EXC_ERR": uint64(WCRNRExceeded),
	"IBV_WC_REM_ABORT_ERR": uint64(WCRemoteAborted), "IBV_WC_FATAL_ERR": uint64(WCFatal),
	"IBV_WC_RESP_TIMEOUT_ERR": uint64(WCResponseTimeout), "IBV_WC_GENERAL_ERR": uint64(WCGeneral),
	"IBV_EVENT_CQ_ERR": uint64(EventCQErr), "IBV_EVENT_QP_FATAL": uint64(EventQPFatal),
	"IBV_EVENT_QP_REQ_ERR": uint64(EventQPRequestErr), "IBV_EVENT_QP_ACCESS_ERR": uint64(EventQPAccessErr),
	"IBV_EVENT_COMM_EST": uint64(EventCommEst), "IBV_EVENT_SQ_DRAINED": uint64(EventSQDrained),
	"IBV_EVENT_PATH_MIG": uint64(EventPathMig), "IBV_EVENT_PATH_MIG_ERR": uint64(EventPathMigErr),
	"IBV_EVENT_DEVICE_FATAL": uint64(EventDeviceFatal), "IBV_EVENT_PORT_ACTIVE": uint64(EventPortActive),
	"IBV_EVENT_PORT_ERR": uint64(EventPortErr), "IBV_EVENT_LID_CHANGE": uint64(EventLIDChange),
	"IBV_EVENT_PKEY_CHANGE": uint64(EventPKeyChange), "IBV_EVENT_SM_CHANGE": uint64(EventSMChange),
	"IBV_EVENT_QP_LAST_WQE_REACHED": uint64(EventQPLastWQE), "IBV_EVENT_CLIENT_REREGISTER": uint64(EventClientRereg),
	"IBV_EVENT_GID_CHANGE": uint64(EventGIDChange),
}

func TestABIMatchesTheHeader(t *testing.T) {
	fields, seen := 0, 0
	for _, line := range realABI(t) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2: // a word
			seen++
			ours, ok := words[f[0]]
			if !ok || strconv.FormatUint(ours, 10) != f[1] {
				t.Errorf("%s is %s, types.go says %d (%v)", f[0], f[1], ours, ok)
			}
		case len(f) == 3 && f[1] == f[2]: // a size or value
			fields++
		case len(f) == 5 && f[1] == f[2] && f[3] == f[4]: // a field: offset, size
			fields++
		default:
			t.Errorf("the header and abi.h differ: %s", line)
		}
	}
	if fields < 120 || seen != len(words) {
		t.Errorf("compared %d fields and %d of %d words only", fields, seen, len(words))
	}
}

// docs/verbs-abi.md says what is relied upon: its offsets are the header's, and no field
// is missing.
func TestABIDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/verbs-abi.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	for _, line := range realABI(t) {
		f := strings.Fields(line)
		if len(f) != 5 {
			continue
		}
		structure, field, _ := strings.Cut(f[0], ".")
		_, rest, found := strings.Cut(text, "| `"+structure+"` |")
		row, _, _ := strings.Cut(rest, "\n")
		if !found || !strings.Contains(row, "`"+field+"` "+f[1]+",") &&
			!strings.Contains(row, "`"+field+"` "+f[1]+" |") {
			t.Errorf("docs/verbs-abi.md does not have %s at %s", f[0], f[1])
		}
	}
}
