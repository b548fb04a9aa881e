package measure

import "time"

// GivesUpAfter has a fleet wait less for agents that are silent.
func (o HostsOptions) GivesUpAfter(d time.Duration) HostsOptions {
	o.giveUp = d
	return o
}

// PairOf is a pair of the loopback ports of two hosts.
var PairOf = pair
