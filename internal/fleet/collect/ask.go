package collect

// Ask runs the programs that know how this host's networks are cabled: ibnetdiscover and lldpcli.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/topoctl/topoctl/internal/ssh"
)

// Bounds of a program's answer.
const (
	mostOutput = 256 << 20
	grace      = 2 * time.Second
)

// IBNetDiscover is the text of ibnetdiscover, which walks the subnet that this host is on. It needs
// /dev/infiniband/umad*, which mostly root alone may open.
func IBNetDiscover(ctx context.Context) ([]byte, error) {
	return run(ctx, "ibnetdiscover (Debian: infiniband-diags)", "ibnetdiscover")
}

// LLDP is what this host hears of its neighbours, and what it says of itself: two documents.
func LLDP(ctx context.Context) ([]byte, error) {
	neighbors, err := run(ctx, "lldpcli (Debian: lldpd)", "lldpcli", "-f", "json", "show", "neighbors", "details")
	if err != nil {
		return nil, err
	}
	chassis, err := run(ctx, "lldpcli", "lldpcli", "-f", "json", "show", "chassis")
	return append(append(neighbors, '\n'), chassis...), err
}

// run gives what a program prints.
func run(ctx context.Context, what, name string, args ...string) ([]byte, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%s is not installed here", what)
	}
	var out bytes.Buffer
	said := &ssh.Tail{} // a large subnet has more warnings than anyone reads
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &bounded{&out, mostOutput}, said, grace
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", name, err, said.Suffix())
	}
	return out.Bytes(), nil
}

var errTooMuch = errors.New("prints more than is read")

// bounded takes a bounded number of bytes.
type bounded struct {
	w    io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, errTooMuch
	}
	b.left -= len(p)
	return b.w.Write(p)
}
