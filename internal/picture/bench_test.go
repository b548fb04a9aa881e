package picture

import (
	"io"
	"testing"

	"github.com/topoctl/topoctl/testkit/fixturetest"
)

func BenchmarkSVG(b *testing.B) {
	for _, name := range []string{"dgx-h100", "nvl72-synthetic"} {
		host := fixturetest.Topology(b, name)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := SVG(io.Discard, host, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
