// Package probe describes measurements of the paths of a host and of a fabric: pairs of ends, what
// is expected of each and why, what was measured, the verdict, and what is to blame. It holds the
// report (topoctl.probe/v1), its events, and the overlay that package pathsel takes from it.
// Package probe/measure makes reports, as "topoctl probe" does.
package probe
