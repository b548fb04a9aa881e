package cli

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/nvml"
	"github.com/topoctl/topoctl/testkit/longtest"
)

// bench runs this program again as its own peer. Here that program is the test
// binary, which would run the tests, and so itself, again and again.
func TestMain(m *testing.M) {
	if os.Getenv(slowChild) != "" {
		endSlowly()
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		os.Exit(Main(context.Background(), os.Args[1:], Stdio(), nvml.New(), nil))
	}
	longtest.Overlap()
	os.Exit(m.Run())
}
