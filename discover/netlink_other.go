//go:build !linux

package discover

import (
	"context"

	"github.com/topoctl/topoctl/discover/topo"
)

// dumpNetlink asks the kernel, which here knows no netlink.
func dumpNetlink(context.Context) (*topo.NetlinkReport, error) { return nil, errNoNetlink }
