package main

import (
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
	"github.com/topoctl/topoctl/test/vmlab/hardware"
)

const suites = "github.com/topoctl/topoctl/test/vmlab/suites/"

// busy are the tests that need an idle host or minutes: the short lab leaves them out.
const busy = "^(TestUnshapedSpeed|TestLatency|TestCommands|TestReconnect|TestSlowRail)$"

// all is what the lab runs without packages. Booting costs more than most suites: what
// can share machines does.
func all(short bool) []vmlab.Options {
	var left []string
	if short {
		left = []string{"-test.v", "-test.skip", busy}
	}
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
				{Package: suites + "rdma", Programs: program, Args: left},
				{Package: suites + "probe", Programs: program, Args: left},
			},
			Limit: 10 * time.Minute,
		},
	}
}
