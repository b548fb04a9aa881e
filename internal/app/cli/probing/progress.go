package probing

import (
	"fmt"
	"time"

	"github.com/topoctl/topoctl/internal/app/cli/command"
	proberun "github.com/topoctl/topoctl/internal/app/probe/run"
	"github.com/topoctl/topoctl/internal/app/probe/show"
	"github.com/topoctl/topoctl/probe"
)

// How often the state of a run is told: to a terminal, where one line is drawn over and
// over, and to a file.
const (
	drawEvery = 100 * time.Millisecond
	sayEvery  = 10 * time.Second
)

// progressBar tells on stderr where a run is.
type progressBar struct {
	o       *measuring
	elapsed func() time.Duration
	last    time.Duration
	drawn   bool
}

func (b *progressBar) show(p proberun.Progress) {
	now, every := b.elapsed(), sayEvery
	if b.o.Streams.ErrTTY {
		every = drawEvery
	}
	if now-b.last < every {
		return
	}
	b.last = now
	line := b.line(&p)
	if !b.o.Streams.ErrTTY {
		fmt.Fprintln(b.o.Streams.Err, "topoctl: "+line)
		return
	}
	b.drawn = true
	fmt.Fprint(b.o.Streams.Err, command.ClearLine+line)
}

func (b *progressBar) line(p *proberun.Progress) string {
	s := show.Progress{Round: p.Round, Rounds: p.Rounds, Done: p.Done, Total: p.Total, Bytes: p.Bytes, Left: p.Left}
	for i := range p.Pairs {
		s.Pairs = append(s.Pairs, show.PairName(&p.Pairs[i], p.Pairs[i].From.Host == p.Pairs[i].To.Host))
	}
	before := map[string]string{probe.RetestAlone: "again, alone: ", probe.RetestOtherPartner: "again, with another partner: "}[p.Retest]
	width := 0
	if b.o.Streams.ErrTTY {
		if width = b.o.Streams.Width; width == 0 {
			width = 80
		}
		width = max(20, width-1) - len(before)
	}
	return before + s.Line(width, b.o.show)
}

// end takes the line away.
func (b *progressBar) end() {
	if b.drawn {
		fmt.Fprint(b.o.Streams.Err, command.ClearLine)
	}
}
