package cli

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/explain/show"
	"github.com/topoctl/topoctl/internal/text"
	"github.com/topoctl/topoctl/pathsel"
)

// runPlan shares all ports among all GPUs, or among local ranks.
func (o *pathOptions) runPlan(h *pathsel.Host) error {
	var consumers []pathsel.Consumer
	if o.ranks > 0 {
		var err error
		if consumers, err = h.Ranks(o.ranks); err != nil {
			return err
		}
	}
	note := ""
	if n := len(h.Topology().GPUs); o.ranks > n && n > 0 {
		note = fmt.Sprintf("%s and %s: ranks are processes without a GPU, on NUMA nodes", text.Plural(o.ranks, "rank"), text.Plural(n, "GPU"))
	}
	p, err := h.Plan(consumers)
	if err != nil {
		return err
	}
	if note != "" && o.Format == formatJSON {
		o.tell("note", note)
	}
	look := o.Look()
	err = o.printAnswer(p, func() string {
		text := show.PlanText(h, p, o.downIDs, &look)
		if note != "" {
			text += "\nnote: " + note + "\n"
		}
		return text
	})
	switch {
	case err != nil:
		return err
	case len(p.Ports) == 0:
		return errBad
	}
	return incomplete(h.Topology(), false)
}
