// Package probe says what measurements of a host's and a fabric's paths are: pairs of
// ends, what is expected of each and why, what was measured, the verdict, and who is
// to blame. It holds the report (topoctl.probe/v1), its events, and the overlay that package
// pathsel takes from it; it opens nothing. "topoctl probe" plans, measures and judges.
package probe
