package main

import (
	"strings"
	"time"

	"github.com/topoctl/topoctl/test/vmlab"
)

const (
	suites = "github.com/topoctl/topoctl/test/vmlab/suites/"
	rdma   = "github.com/topoctl/topoctl/engine/internal/transport/rdma/rdmalab" // which reaches into the engine
)

// only runs the tests of those names.
func only(tests ...string) []string {
	return []string{"-test.v", "-test.run", "^(" + strings.Join(tests, "|") + ")$"}
}

// all is what the lab runs without packages. Booting costs more than most suites: what
// can share machines does. The short lab is one pair of machines and what only real verbs can
// show of each subject: devices as they were described, what the doctor says of broken ones, bytes
// that come late, and a lane that is lost.
func all(short bool) []vmlab.Options {
	program := []string{"github.com/topoctl/topoctl/cmd/topoctl"}
	if short {
		return []vmlab.Options{{
			Machines: []*vmlab.Machine{vmlab.Rails(), vmlab.Rails()},
			Suites: []vmlab.Suite{
				{Package: suites + "discovery", Programs: program, Args: only("TestDiscover", "TestMatrix", "TestRemap")},
				{Package: suites + "doctor", Programs: program},
				{Package: rdma, Programs: program, Args: only("TestLateBytes", "TestLaneLost")},
			},
			Limit: 10 * time.Minute,
		}}
	}
	return []vmlab.Options{
		{
			Machines: []*vmlab.Machine{vmlab.TwoNodes(), vmlab.FourNodes()},
			Suites:   []vmlab.Suite{{Package: suites + "discovery", Programs: program}},
		},
		{
			Machines: []*vmlab.Machine{vmlab.Rails(), vmlab.Rails()},
			Suites: []vmlab.Suite{
				{Package: suites + "lab"},
				{Package: suites + "doctor", Programs: program},
				{Package: rdma, Programs: program},
				{Package: suites + "probe", Programs: program},
			},
			Limit: 10 * time.Minute,
		},
	}
}
