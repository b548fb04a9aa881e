// Package predict runs a serving system (kv/serve) over the simulator (internal/sim): the same
// requests on any hosts and fabric, with any choice of ports, in virtual time. The lanes are
// pathsel's and the slices internal/sched's, as in a real transfer; compute is a model.
//
// Each pair of ranks of a transfer is one job of the scheduler of the host that starts it: the
// prefill side's that pushes, the decode side's that pulls. Between ranks of one host it is a
// flow along the host's own links. Spec.SliceBytes says how fine jobs are cut. What coarse
// slices cost: a lane ends up to a slice later than the others, and a fault is noticed a slice
// later.
package predict
