package control

// A job is what the lab tells a machine to do, and where things lie in it.

import (
	"encoding/json"
	"fmt"
	"os"
	"path"

	"github.com/topoctl/topoctl/test/vmlab/hardware"
)

// Places in a machine.
const (
	File     = "/lab/job.json"
	Programs = "/lab/bin"    // what suites bring along; on the path of programs
	Suites   = "/lab/suites" // a folder for each suite: its test program and testdata
	Out      = "/out"        // what a suite leaves here comes back
	Test     = "test"        // the test program in a suite's folder
)

// Variables of the environment of a test.
const (
	EnvHost  = "VMLAB_HOST"  // which machine this is, 1 or 2
	EnvSuite = "VMLAB_SUITE" // name of the suite
	EnvOut   = "VMLAB_OUT"   // folder of what shall come back
)

// Job is the same for all machines of a run.
type Job struct {
	Machines []*hardware.Machine `json:"machines"` // machine 1 first
	Modules  []string            `json:"modules"`
	Suites   []Suite             `json:"suites"`
}

// Suite is one test program, run at the same time in all machines.
type Suite struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
}

// Dir is a suite's folder in the machine.
func (s *Suite) Dir() string { return path.Join(Suites, s.Name) }

// Load reads the job inside a machine.
func Load() (*Job, error) {
	data, err := os.ReadFile(File)
	if err != nil {
		return nil, fmt.Errorf("job: this is no machine of the lab: %w", err)
	}
	j := &Job{}
	if err := json.Unmarshal(data, j); err != nil {
		return nil, fmt.Errorf("job: %s: %w", File, err)
	}
	return j, nil
}
