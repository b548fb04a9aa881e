package shm

import "github.com/topoctl/topoctl/internal/base/engine/transport"

var (
	_ transport.Offerer   = (*Transport)(nil)
	_ transport.Selective = (*Transport)(nil)
)

// Offers is where peers of this host reach the transport.
func (t *Transport) Offers() []transport.Endpoint { return []transport.Endpoint{t.Endpoint()} }

// Reaches says whether the peer's region can be mapped, or reached through windows.
func (t *Transport) Reaches(r *transport.RemoteRegion) bool {
	key := r.Key[t.Name()]
	return key == Mapped || key == Windowed
}
