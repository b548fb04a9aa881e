package engine

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	mem "github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/session"
	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/engine/trust"
	"github.com/topoctl/topoctl/internal/text"
)

// Permissions are what a peer may do with this engine. The zero value permits nothing.
type Permissions struct {
	// Regions say which regions the peer may use, and how: of each region's own grant, what
	// those that match its name allow together. Other regions do not exist for the peer.
	Regions []RegionPermission
	// Topology says whether the peer is told this host's topology. Without it, it chooses lanes
	// by addresses alone.
	Topology bool
	// Calls say whether Peer.Call and notifications reach the application.
	Calls bool
}

// RegionPermission allows what Grant says with the regions whose names match a pattern. In
// patterns, * stands for any characters and ? for one, but neither for a slash, as in
// path.Match; "*" alone matches all names.
type RegionPermission struct {
	Name  string
	Grant memory.Grant
}

// grant is what is allowed with a region of this name.
func (x *Permissions) grant(region string) mem.Grant {
	g := mem.None
	for _, r := range x.Regions {
		if text.Matches(r.Name, region) {
			g |= mem.Grant(r.Grant)
		}
	}
	return g
}

func (x *Permissions) nothing() bool { return len(x.Regions) == 0 && !x.Topology && !x.Calls }

func (x *Permissions) equal(y *Permissions) bool {
	return slices.Equal(x.Regions, y.Regions) && x.Topology == y.Topology && x.Calls == y.Calls
}

// permit is what was decided about the peers that have the same permissions. A nil one narrows nothing.
type permit struct {
	Permissions
	rights *mem.Rights
	peers  int // that have the engine open
	view   view
}

// refuse says why a peer may not make a call; nil: it may.
func (p *permit) refuse(s *session.Session, method uint16) error {
	what := ""
	switch {
	case p == nil || method == methodLeave: // leaving ends what there is
		return nil
	case p.nothing():
		what = "anything"
	case method == methodAccept && len(p.Regions) == 0:
		what = "data connections"
	case (method == methodAsk || method == methodNotify) && !p.Calls:
		what = "calls of its application"
	default:
		return nil
	}
	return fmt.Errorf("not permitted: this engine does not allow %s to a peer %s", what, idText(s.PeerID()))
}

// permits are the decisions about peers that have this engine open.
type permits struct {
	mu  sync.Mutex
	by  map[*session.Session]*permit
	all []*permit // each of which differs from the others
}

// permitOf is what a peer may do. It is decided once for each session: memory that a peer has
// mapped, or a device of its has a key for, cannot be narrowed, but only left.
func (e *Engine) permitOf(s *session.Session) *permit {
	if e.o.Security.Permit == nil {
		return nil
	}
	x := &e.permits
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.by[s]; p != nil {
		return p
	}
	now := e.o.Security.Permit(s.PeerID())
	now.Regions = slices.Clone(now.Regions)
	i := slices.IndexFunc(x.all, func(p *permit) bool { return p.equal(&now) })
	if i < 0 {
		i = len(x.all)
		x.all = append(x.all, &permit{Permissions: now, rights: mem.NewRights(now.grant)})
	}
	p := x.all[i]
	p.peers++
	if x.by == nil {
		x.by = map[*session.Session]*permit{}
	}
	x.by[s] = p
	return p
}

// forgetPermit is for a session that is over.
func (e *Engine) forgetPermit(s *session.Session) {
	x := &e.permits
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.by[s]
	if p == nil {
		return
	}
	delete(x.by, s)
	if p.peers--; p.peers == 0 {
		x.all = slices.DeleteFunc(x.all, func(other *permit) bool { return other == p })
	}
}

// RecheckPermissions has Security.Permit decide again about the peers that have this engine open.
// Those about which it now decides otherwise lose it, with all their connections, and can open it again
// with what they have then. Until their connections have ended, which is waited for, they can do what
// they could.
func (e *Engine) RecheckPermissions() {
	if e.o.Security.Permit == nil {
		return
	}
	x := &e.permits
	x.mu.Lock()
	var other []*session.Session
	for s, p := range x.by {
		if now := e.o.Security.Permit(s.PeerID()); !p.equal(&now) {
			other = append(other, s)
		}
	}
	x.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range other {
		wg.Go(func() {
			e.log.Info("a peer's permissions have changed: it must open this engine again", "peer", idText(s.PeerID()))
			_ = s.Close()
		})
	}
	wg.Wait()
}

// idText names a peer by what it has proven.
func idText(id trust.PeerID) string {
	switch {
	case len(id.Certificate) > 0:
		return "with the certificate of " + strings.Join(id.Certificate, ", ")
	case id.Token != "":
		return "with the token " + id.Token
	}
	return "without a proven name"
}
