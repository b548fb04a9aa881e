package fabric

import "time"

// GivesUpAfter has a fleet wait less for agents that are silent.
func (o Options) GivesUpAfter(d time.Duration) Options {
	o.giveUp = d
	return o
}

// PairOf is a pair of the loopback ports of two hosts.
var PairOf = pair
