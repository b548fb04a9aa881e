package vmlab

// A job is what the lab tells a machine to do, and where things lie in it.

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
)

// Places in a machine.
const (
	jobFile     = "/lab/job.json"
	ProgramsDir = "/lab/bin"    // what suites bring along; on the path of programs
	suitesDir   = "/lab/suites" // a folder for each suite: its test program and testdata
	Out         = "/out"        // what a suite leaves here comes back
	Test        = "test"        // the test program in a suite's folder
)

// Variables of the environment of a test.
const (
	EnvHost  = "VMLAB_HOST"  // which machine this is, 1 or 2
	EnvSuite = "VMLAB_SUITE" // name of the suite
	EnvOut   = "VMLAB_OUT"   // folder of what shall come back
)

// Job is the same for all machines of a run.
type Job struct {
	Machines []*Machine   `json:"machines"` // machine 1 first
	Modules  []string     `json:"modules"`
	Suites   []BuiltSuite `json:"suites"`
}

// BuiltSuite is one test program, run at the same time in all machines.
type BuiltSuite struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
}

// Dir is a suite's folder in the machine.
func (s *BuiltSuite) Dir() string { return path.Join(suitesDir, s.Name) }

// LoadJob reads the job inside a machine.
func LoadJob() (*Job, error) {
	data, err := os.ReadFile(jobFile)
	if err != nil {
		return nil, fmt.Errorf("job: this is no machine of the lab: %w", err)
	}
	j := &Job{}
	if err := json.Unmarshal(data, j); err != nil {
		return nil, fmt.Errorf("job: %s: %w", jobFile, err)
	}
	return j, nil
}
