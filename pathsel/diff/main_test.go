package diff_test

import (
	"testing"

	"github.com/topoctl/topoctl/testkit/longtest"
)

func TestMain(m *testing.M) { longtest.Main(m) }
