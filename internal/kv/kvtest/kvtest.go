// Package kvtest has what tests of serving need. Only tests import it.
package kvtest

import "github.com/topoctl/topoctl/internal/kv/compute"

// Linear computes each token of a prompt in TokenNS, and a step that decodes in DecodeNS.
type Linear struct{ TokenNS, DecodeNS int64 }

// StepNS is how long a step takes.
func (l Linear) StepNS(s compute.Step) int64 {
	ns := int64(0)
	for _, c := range s.Chunks {
		ns += l.TokenNS * int64(c.Tokens)
	}
	if s.Decode > 0 {
		ns += l.DecodeNS
	}
	return ns
}
