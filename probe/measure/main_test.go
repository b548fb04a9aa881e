package measure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/agent"
	"github.com/topoctl/topoctl/probe/measure"
)

// As a child of a test this binary is an agent, as topoctl agent is one.
func TestMain(m *testing.M) {
	if os.Getenv("FABRIC_TEST_AGENT") != "" {
		if err := beAgent(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func beAgent(args []string) error {
	listen := ""
	for i, a := range args {
		if a == "--listen" {
			listen = args[i+1]
		}
	}
	var token []byte
	for b := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(b); err != nil || b[0] == '\n' {
			break
		}
		token = append(token, b[0])
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return agent.Run(ctx, agent.Options{
		Engine: engine.Options{Name: strings.Join(args, " "), Listen: []string{listen}, Security: engine.Security{Credentials: trust.Secret(token)}},
		Probe:  &measure.ServerOptions{Targets: measure.LoopbackTargets, Limits: measure.Limits{MemoryBytes: 4 << 20}},
		Ready: func(i agent.Info) {
			_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"schema": "topoctl.agent/v1", "epoch": fmt.Sprint(i.Epoch), "addresses": i.Addresses})
		},
	})
}
