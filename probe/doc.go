// Package probe says what measurements of a host's and a fabric's paths are: pairs of
// ends, what is expected of each and why, what was measured, the verdict, and who is
// to blame. It holds the report (topoctl.probe/v1) and no more; it opens nothing.
//
//	internal/app/probe/plan    which pairs there are, what each should carry, which go together
//	internal/app/probe/stats   samples: confidence intervals, percentiles, when to stop
//	internal/app/probe/run     runs a plan through a Prober, round by round
//	internal/app/probe/local   a Prober of this host: memory, GPUs, ports
//	internal/app/probe/fabric  a Prober of many hosts, and the agents' part in it
//	internal/app/probe/judge   verdicts, outliers, blame
//	internal/app/probe/compare what differs between two reports
//	internal/app/probe/show    the report for people: table, SVG, HTML
package probe
