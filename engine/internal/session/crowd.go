package session

import (
	"cmp"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/topoctl/topoctl/engine/internal/transport"
)

// stage is how far a connection has come in its handshake.
type stage uint8

const (
	silent   stage = iota // its first bytes have not come
	speaking              // they have
	secure                // its TLS handshake is done
	proven                // it has proven what is demanded: a few bytes are left
	stages
)

// crowd is the connections in their handshake. There are many strangers among them in a flood,
// who may come from the address of a good peer, and faster than that one can answer. A good one
// speaks as soon as it is connected, and comes further: so one that has not come as far makes
// room first.
type crowd struct {
	by    map[net.Conn]*comer
	comes uint64 // that have come
}

// comer is a connection in its handshake.
type comer struct {
	conn  net.Conn
	from  transport.Account
	order uint64
	stage stage
}

func (w *crowd) add(c net.Conn) {
	w.comes++
	w.by[c] = &comer{conn: c, from: addressOf(c), order: w.comes}
}

// crowding chooses the connection to close to make room for one from the given address; nil
// if there is none. It takes the first stage that holds more than its share, so that
// connections lingering in a stage cannot crowd out new ones, and within it the address with
// the most connections, if it has more than the new one's would. Among silent connections it
// takes the oldest, because a peer that sends nothing at once rarely sends anything later;
// otherwise a random one, so that no peer gains by being faster.
func (w *crowd) crowding(from transport.Account) *comer {
	var at [stages][]*comer
	for _, x := range w.by {
		at[x.stage] = append(at[x.stage], x)
	}
	var list []*comer
	for i := range at {
		if len(at[i]) > len(list) && len(list) <= len(w.by)/int(stages) {
			list = at[i]
		}
	}
	if list == nil {
		return nil
	}
	count, most := map[transport.Account]int{}, from
	for _, x := range list {
		if count[x.from]++; count[x.from] > count[most] {
			most = x.from
		}
	}
	if count[most] > count[from]+1 {
		list = slices.DeleteFunc(list, func(x *comer) bool { return x.from != most })
	}
	if list[0].stage == silent {
		return slices.MinFunc(list, func(a, b *comer) int { return cmp.Compare(a.order, b.order) })
	}
	return list[rand.N(len(list))]
}

// addressOf is the account of a peer that has proven nothing: its address, or of IPv6 its
// network, because one host has all addresses of that if it wants to.
func addressOf(c net.Conn) transport.Account {
	addr := addrOf(c.RemoteAddr()).Addr().WithZone("")
	if addr.Is6() {
		return transport.Account(netip.PrefixFrom(addr, 64).Masked().String())
	}
	return transport.Account(addr.String())
}
