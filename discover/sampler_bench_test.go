package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/counters"
)

// BenchmarkSample reads hosts that lie on disk. What drivers take is not in it.
func BenchmarkSample(b *testing.B) {
	for _, name := range []string{"cpu-2eth", "dgx-h100", "aws-p5-44nic-synthetic"} {
		b.Run(name, func(b *testing.B) {
			dir := extract(b, name)
			fill(b, dir)
			_, tp := sampler(b, Options{Root: dir})
			s, err := NewSampler(Options{HostRoot: dir})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			take(b, s, tp, 0)
			values, began := 0, cpuTime()
			for b.Loop() {
				values = valuesIn(take(b, s, tp, 0))
			}
			b.ReportMetric(float64(cpuTime()-began)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(values), "values")
		})
	}
}

// valuesIn counts what a sample's files said.
func valuesIn(s *counters.Sample) int {
	n := 2 * len(s.Links)
	for i := range s.Ports {
		p := &s.Ports[i]
		n += 1 + len(p.Errors)
		for _, c := range []*uint64{p.SentBytes, p.ReceivedBytes, p.SentPackets, p.ReceivedPackets} {
			if c != nil {
				n++
			}
		}
		if p.BytesPerSec != nil {
			n++
		}
	}
	return n
}

// fill adds the counters that the drivers of a fixture's ports have and the fixture has not.
func fill(b *testing.B, dir string) {
	statistics := []string{"collisions", "multicast", "rx_bytes", "rx_compressed", "rx_crc_errors", "rx_dropped", "rx_errors", "rx_fifo_errors",
		"rx_frame_errors", "rx_length_errors", "rx_missed_errors", "rx_nohandler", "rx_over_errors", "rx_packets", "tx_aborted_errors", "tx_bytes",
		"tx_carrier_errors", "tx_compressed", "tx_dropped", "tx_errors", "tx_fifo_errors", "tx_heartbeat_errors", "tx_packets", "tx_window_errors"}
	efa := []string{"lifespan", "rdma_read_bytes", "rdma_read_resp_bytes", "rdma_read_wr_err", "rdma_read_wrs", "rdma_write_bytes",
		"rdma_write_recv_bytes", "rdma_write_wr_err", "rdma_write_wrs", "recv_bytes", "recv_wrs", "rx_bytes", "rx_drops", "rx_pkts", "send_bytes", "send_wrs",
		"tx_bytes", "tx_pkts", "retrans_bytes", "retrans_pkts", "retrans_timeout_events", "unresponsive_remote_events", "impaired_remote_conn_events"}
	mlx5 := []string{"duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err", "np_cnp_sent", "np_ecn_marked_roce_packets",
		"out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_cqe_flush_error", "req_remote_access_errors", "req_remote_invalid_request",
		"resp_cqe_error", "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err", "roce_adp_retrans",
		"roce_adp_retrans_to", "roce_slow_restart", "rp_cnp_handled", "rp_cnp_ignored", "rx_icrc_encapsulated"}
	all := func(at string, names []string) {
		for i, name := range names {
			put(b, filepath.Join(at, name), fmt.Sprintln(123456789012+i))
		}
	}
	nets, _ := filepath.Glob(dir + "/sys/class/net/*")
	for _, at := range nets {
		all(at+"/statistics", statistics)
		all(at, []string{"carrier_changes", "carrier_up_count", "carrier_down_count"})
	}
	ports, _ := filepath.Glob(dir + "/sys/class/infiniband/*/ports/*")
	for _, at := range ports {
		if _, err := os.Stat(at + "/counters"); err == nil {
			all(at+"/hw_counters", mlx5)
		} else {
			all(at+"/hw_counters", efa)
		}
	}
	if len(ports)+len(nets) == 0 {
		b.Fatal("no ports")
	}
}

// extract puts a fixture on disk.
func extract(t testing.TB, name string) string {
	t.Helper()
	tree, err := fixtures.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, tree); err != nil {
		t.Fatal(err)
	}
	return dir
}
