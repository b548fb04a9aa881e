package rdma

import "github.com/topoctl/topoctl/internal/base/engine/transport"

// Factory makes RDMA for an engine: one of engine.Options.Transports. Where the host has
// none the engine goes on without, and its Unavailable says why. The engine is told of
// changes in place of o.Changed.
func Factory(o Options) transport.Factory {
	return func(env transport.Env) (transport.Transport, error) {
		o := o
		o.Changed = env.Changed
		t, err := New(o)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
}
