package pick_test

import (
	"testing"

	"github.com/topoctl/topoctl/internal/base/longtest"
)

func TestMain(m *testing.M) { longtest.Main(m) }
