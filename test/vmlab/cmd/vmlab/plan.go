package main

import (
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/hardware"
)

const suites = "github.com/topoctl/topoctl/test/vmlab/suites/"

// all is what the lab runs without arguments. Booting costs more than most suites: what
// can share machines does.
func all() []vmlab.Options {
	program := []string{"github.com/topoctl/topoctl/cmd/topoctl"}
	return []vmlab.Options{
		{
			Machines: []*hardware.Machine{hardware.TwoNodes(), hardware.FourNodes()},
			Suites:   []vmlab.Suite{{Package: suites + "discovery", Programs: program}},
		},
		{
			Machines: []*hardware.Machine{hardware.Rails(), hardware.Rails()},
			Suites: []vmlab.Suite{
				{Package: suites + "lab"},
				{Package: suites + "doctor", Programs: program},
				{Package: suites + "rdma", Programs: program},
			},
			Limit: 6 * time.Minute,
		},
	}
}
