package audit

import (
	"regexp"
	"strconv"
	"strings"
)

// The lines of UCX. Each begins with [time] [host:pid:thread]; lanes are listed once for each
// kind of endpoint, and protocols in tables.
// Source: openucx/ucx, src/ucp/core/ucp_worker.c (ucp_worker_print_used_tls), src/ucp/proto/proto_debug.c;
// pull requests 3511 and 7950 and issues 8967, 9971 there.
var (
	ucxPrefix = regexp.MustCompile(`(?:^|[\s:>|)])\[\d+\.\d+\] \[([^\s:\[\]]+):(\d+):[^\]\s]*\]\s+(.*)$`)
	ucxLanes  = regexp.MustCompile(`(?:^|\s)(?:ep_cfg\[\d+\]:?|(?:inter|intra)-node cfg#\d+|self cfg#\d+)\s+((?:[a-z_0-9]+\([^()]*\)[; ]*)+)$`)
	ucxTable  = regexp.MustCompile(`^\|\s*(?:\d\S*\.\.\S+|0)\s*\|[^|]*\|([^|]*)\|?\s*$`)
	ucxDevice = regexp.MustCompile(`\b([a-z][a-z0-9_]*)/([A-Za-z0-9_.\-]+)(?::(\d+))?`)
)

// ucxTransports are those that leave the host; the others are shared memory and GPU links.
var ucxTransports = map[string]Way{
	"rc_mlx5": RDMA, "rc_verbs": RDMA, "rc_x": RDMA, "rc_gda": RDMA, "dc_mlx5": RDMA, "dc_x": RDMA,
	"ud_mlx5": RDMA, "ud_verbs": RDMA, "ud_x": RDMA, "gga_mlx5": RDMA, "srd": RDMA, "tcp": TCP,
}

func (p *parser) ucxLine(line string) {
	m := ucxPrefix.FindStringSubmatch(line)
	if m == nil {
		return
	}
	pid, err := strconv.Atoi(m[2])
	if err != nil {
		return
	}
	at, said := process{m[1], pid}, m[3]
	if lanes := ucxLanes.FindStringSubmatch(said); lanes != nil {
		p.ucxDevices(at, lanes[1])
		return
	}
	// The source file and the level may stand before a table's bar.
	if i := strings.IndexByte(said, '|'); i >= 0 {
		if row := ucxTable.FindStringSubmatch(said[i:]); row != nil {
			p.ucxDevices(at, row[1])
		}
	}
}

// ucxDevices counts the devices that a text names as transport/device:port.
func (p *parser) ucxDevices(at process, text string) {
	for _, m := range ucxDevice.FindAllStringSubmatch(text, maxListed) {
		way, leaves := ucxTransports[m[1]]
		if !leaves {
			continue
		}
		port, _ := strconv.Atoi(m[3]) // 0 without one
		p.use(key{at, UCX, way, m[2], port}, 0)
	}
}
