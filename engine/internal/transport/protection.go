package transport

import (
	"fmt"
	"slices"
	"strings"
)

// Protection is what a connection that carries bytes over a network makes sure of against
// somebody who can change what is on its path. Each level has what the one before it has.
type Protection uint8

// The levels, which are also numbers on the wire.
const (
	Open    Protection = iota // accidents are found, nothing else
	Headers                   // what is moved, and from where to where; not the bytes
	Payload                   // the bytes too
	Sealed                    // and no one can read them
)

// Protections are the names of the levels.
var Protections = []string{"open", "headers", "payload", "sealed"}

func (p Protection) String() string {
	if int(p) < len(Protections) {
		return Protections[p]
	}
	return fmt.Sprintf("level %d", uint8(p))
}

// ParseProtection reads the name of a level.
func ParseProtection(name string) (Protection, error) {
	if i := slices.Index(Protections, name); i >= 0 {
		return Protection(i), nil
	}
	return 0, fmt.Errorf("protection %q: want %s", name, strings.Join(Protections, ", "))
}
