package counters

import "strings"

// severity is how bad each increment of a counter is.
type severity bool

const (
	// lossy: packets were lost, refused or sent again, as on any busy network now and then.
	lossy severity = false
	// broken: the cable, the port or the host behind it does not work as it should.
	broken severity = true
)

// severities are the counters whose every increment means trouble, by file name. Counters of
// congestion that was handled as designed are not among them: port_xmit_wait, np_cnp_sent,
// rp_cnp_handled, np_ecn_marked_roce_packets, out_of_sequence (adaptive routing reorders),
// roce_slow_restart. Nor are those that count in normal operation: rx_dropped (a frame of a protocol
// that nobody listens to), rx_nohandler, port_rcv_switch_relay_errors (one's own multicast),
// resp_cqe_error and req_cqe_error (each queue pair that is closed with work in it), and
// bnxt_re's recoverable_errors (broadcasts that were sent, in older kernels).
var severities = map[string]severity{
	// ports/N/counters: Documentation/ABI/stable/sysfs-class-infiniband; InfiniBand
	// Architecture Specification 1.4, volume 1, chapter 16.1.3.5 (PortCounters).
	"symbol_error":                    broken,
	"link_error_recovery":             broken,
	"link_downed":                     broken, // rxe has it in hw_counters
	"port_rcv_errors":                 broken,
	"port_rcv_remote_physical_errors": broken, // damaged further up, and marked
	"local_link_integrity_errors":     broken,
	"excessive_buffer_overrun_errors": broken,
	"port_xmit_constraint_errors":     broken, // partition keys that do not fit
	"port_rcv_constraint_errors":      broken,
	"port_xmit_discards":              lossy,
	"VL15_dropped":                    lossy, // management datagrams without room

	// ports/N/hw_counters of mlx5: drivers/infiniband/hw/mlx5/counters.c and NVIDIA,
	// "Understanding mlx5 Linux counters and status parameters".
	"rx_icrc_encapsulated":           broken, // RoCE packets that were damaged on the way
	"req_transport_retries_exceeded": broken, // a connection died
	"req_rnr_retries_exceeded":       broken,
	"resp_local_length_error":        lossy,
	"req_remote_invalid_request":     lossy,
	"req_remote_access_errors":       lossy,
	"resp_remote_access_errors":      lossy,
	"local_ack_timeout_err":          lossy,
	"packet_seq_err":                 lossy,
	"implied_nak_seq_err":            lossy,
	"duplicate_request":              lossy, // also rxe
	"rnr_nak_retry_err":              lossy, // the peer had posted no receive
	"out_of_buffer":                  lossy, // this host had not
	"roce_adp_retrans":               lossy,
	"roce_adp_retrans_to":            lossy,

	// Of bnxt_re: drivers/infiniband/hw/bnxt_re/hw_counters.c.
	"rx_roce_errors":         broken,
	"max_retry_exceeded":     broken,
	"unrecoverable_err":      broken,
	"res_mem_err":            broken,
	"res_tx_pci_err":         broken,
	"res_rx_pci_err":         broken,
	"rx_roce_discards":       lossy,
	"to_retransmits":         lossy,
	"seq_err_naks_rcvd":      lossy,
	"rnr_naks_rcvd":          lossy,
	"missing_resp":           lossy,
	"bad_resp_err":           lossy,
	"local_qp_op_err":        lossy,
	"local_protection_err":   lossy,
	"remote_invalid_req_err": lossy,
	"remote_access_err":      lossy,
	"remote_op_err":          lossy,
	"dup_req":                lossy,
	"oos_drop_count":         lossy,
	"rx_out_of_buffer":       lossy,

	// Of efa: drivers/infiniband/hw/efa/efa_verbs.c.
	"unresponsive_remote_events":  broken,
	"rx_drops":                    lossy,
	"rdma_read_wr_err":            lossy,
	"rdma_write_wr_err":           lossy,
	"retrans_pkts":                lossy,
	"retrans_timeout_events":      lossy,
	"impaired_remote_conn_events": lossy,

	// Of irdma and i40iw: drivers/infiniband/hw/irdma/verbs.c.
	"ip4InTruncatedPkts": broken,
	"ip6InTruncatedPkts": broken,
	"InProtoErrors":      broken,
	"tcpInProtoErrors":   broken,
	"InOptErrors":        lossy,
	"tcpInOptErrors":     lossy,
	"ip4InDiscards":      lossy,
	"ip6InDiscards":      lossy,
	"RetransSegs":        lossy,
	"tcpRetransSegs":     lossy,

	// Of rxe: drivers/infiniband/sw/rxe/rxe_hw_counters.c.
	"retry_exceeded_err":     broken,
	"retry_rnr_exceeded_err": broken,
	"send_err":               lossy,
	"completer_retry_err":    lossy,
	"rcvd_seq_err":           lossy,
	"out_of_seq_request":     lossy, // nothing reorders in front of it
	"rcvd_rnr_err":           lossy,
	"send_rnr_err":           lossy,

	// Of interfaces: Documentation/ABI/testing/sysfs-class-net.
	"carrier_down_count": broken,

	// statistics of interfaces: Documentation/ABI/testing/sysfs-class-net-statistics and
	// struct rtnl_link_stats64 of include/uapi/linux/if_link.h.
	"rx_errors":           broken,
	"rx_crc_errors":       broken,
	"rx_frame_errors":     broken,
	"tx_errors":           broken,
	"tx_aborted_errors":   broken,
	"tx_carrier_errors":   broken,
	"tx_heartbeat_errors": broken,
	"tx_window_errors":    broken,
	"collisions":          broken, // no link of today is shared
	"rx_length_errors":    lossy,
	"rx_over_errors":      lossy,
	"rx_fifo_errors":      lossy,
	"rx_missed_errors":    lossy,
	"tx_fifo_errors":      lossy,
	"tx_dropped":          lossy,
}

// severityOf looks a counter up. mlx5 gives the counters of a virtual port a prefix.
func severityOf(name string) (severity, bool) {
	t, ok := severities[strings.TrimPrefix(name, "vport_")]
	return t, ok
}

// Trouble says whether every increment of a counter means trouble, by the name of its file.
// These are the counters that Port.Errors may have.
func Trouble(name string) bool {
	_, ok := severityOf(name)
	return ok
}

// Serious says whether an increment of a counter means that something is broken: a cable, a
// port, a setting, a connection that died. The others mean that packets were lost or sent
// again, which happens on a busy network.
func Serious(name string) bool {
	t, _ := severityOf(name)
	return t == broken
}
