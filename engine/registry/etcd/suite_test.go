package etcd

import (
	"fmt"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine/registry"
	"github.com/topoctl/topoctl/engine/registry/registrytest"
	"github.com/topoctl/topoctl/testkit/etcdtest"
)

// shortTTL is the shortest that etcd grants with the election timeout of etcdtest.
const shortTTL = 3 * time.Second

func init() { minTTL = shortTTL }

// open opens a registry in a cluster, which the test closes.
func open(tb testing.TB, c *etcdtest.Cluster, change ...func(*Options)) *etcd {
	tb.Helper()
	o := Options{Endpoints: c.Endpoints(), TTL: leastTTL}
	if c.TLS != nil {
		o.TLS = c.TLS.Client(tb, "root")
	}
	for _, f := range change {
		f(&o)
	}
	r, err := Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return r.(*etcd)
}

// suite runs the tests of every registry; each test has a prefix of its own.
func suite(t *testing.T, c *etcdtest.Cluster) {
	prefixes := map[string]string{}
	registrytest.Run(t, registrytest.Suite{
		Open: func(t *testing.T) registry.Registry {
			p, ok := prefixes[t.Name()]
			if !ok {
				p = fmt.Sprintf("/suite/%d-%d", time.Now().UnixNano(), len(prefixes))
				prefixes[t.Name()] = p
			}
			return open(t, c, func(o *Options) { o.Prefix = p })
		},
		Name: func(i int) string { return fmt.Sprintf("engine %d/of ü%%2F", i) },
		Lose: func(t *testing.T, r registry.Registry) {
			e := r.(*etcd)
			e.mu.Lock()
			l := e.lease
			e.mu.Unlock()
			if _, err := c.Client(t).Revoke(t.Context(), l.id); err != nil {
				t.Fatal(err)
			}
		},
		BadNames: []string{"no/such", "..", "a\x00b"},
	})
}

func TestSuite(t *testing.T) {
	t.Parallel()
	suite(t, etcdtest.Start(t, etcdtest.Options{}))
}

func TestSuiteThreeMembersTLS(t *testing.T) {
	t.Parallel()
	suite(t, etcdtest.Start(t, etcdtest.Options{Members: 3, TLS: true}))
}
