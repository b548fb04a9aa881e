// Package measure measures the paths within this host, or between the ports of many, and judges them:
//
//	p, err := measure.Local(t, measure.LocalOptions{}) // t is of discover.Discover
//	if err != nil { ... }
//	defer p.Close()
//	report, err := measure.Run(ctx, p, measure.Options{Event: func(e *probe.Event) { ... }})
//
// What is measured, how, and what that takes, is a plan, which can be looked at before anything is sent:
//
//	pairs, err := p.Pairs(ctx) // pairs.Select has some of them
//	work, err := plan.Make(pairs, plan.Options{Spec: spec}) // work.Rounds, work.Estimate
//	report, err := measure.Run(ctx, p, measure.Options{Plan: work})
//
// Between hosts (Hosts) an agent on each of them answers a controller's calls (Server). In each round memory is prepared
// at the targets, the initiators connect, all begin together, and what each claims is checked before it is believed.
//
// Whoever has the token can have an agent move bytes, as it can by the engine itself. Both
// ends take nothing on trust beyond that: whatever comes is bounded and checked. Only
// durations travel, by clocks that nobody steps.
package measure
