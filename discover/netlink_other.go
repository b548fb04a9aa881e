//go:build !linux

package discover

import (
	"context"

	"github.com/topoctl/topoctl/discover/replies"
)

// dumpNetlink asks the kernel, which here knows no netlink.
func dumpNetlink(context.Context) (*replies.NetlinkReport, error) { return nil, errNoNetlink }
