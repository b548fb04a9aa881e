package discover

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/base/replies"
)

// nvml asks the GPU vendor's library, or replays what a capture recorded.
func (p pipeline) nvml(ctx context.Context) outcome {
	const s = topo.SourceNVML
	if p.live && p.opts.GPUs == nil {
		return gpusUnasked(withStatus(s, topo.StatusSkipped, "this program was given no GPU library"), true)
	}
	if p.live {
		report, err := p.opts.GPUs.GPUs(ctx)
		var absent interface{ Absent() bool }
		switch {
		case errors.As(err, &absent) && absent.Absent():
			return gpusUnasked(withStatus(s, topo.StatusAbsent, err.Error()), true)
		case err != nil:
			return failed(s, "", err)
		case report == nil:
			return failed(s, "", errors.New("the GPU library gave no report"))
		}
		return gpusAnswered(report, false)
	}
	report := &replies.GPUReport{}
	found, err := replay(p.tree, replies.NVMLPath, replies.SchemaNVML, report)
	if err == nil && found {
		err = checkGPUs(report)
	}
	switch {
	case err != nil:
		return failed(s, replies.NVMLPath, err)
	case !found:
		return gpusUnasked(withStatus(s, topo.StatusAbsent, "the tree has no recorded NVML answers"), false)
	}
	return gpusAnswered(report, true)
}

// gpusAnswered is the outcome of a report.
func gpusAnswered(report *replies.GPUReport, recorded bool) outcome {
	detail := []string{fmt.Sprintf("%d GPUs", len(report.GPUs))}
	for _, v := range []struct{ name, value string }{
		{"driver", report.DriverVersion}, {"NVML", report.NVMLVersion}, {"CUDA", report.CUDAVersion},
	} {
		if v.value != "" {
			detail = append(detail, v.name+" "+v.value)
		}
	}
	o := withStatus(topo.SourceNVML, topo.StatusOK, strings.Join(detail, ", "))
	if len(report.Warnings) > 0 {
		o.report.Status = topo.StatusPartial
	}
	o.report.Recorded = recorded
	o.warnings = fromSource(topo.SourceNVML, report.Warnings)
	o.said.gpus = report
	o.apply = func(t *topo.Topology, _ *topo.SourceReport) { applyNVML(t, report) }
	return o
}

// gpusUnasked adds to an outcome what it means that NVML did not answer, on a
// host that has NVIDIA GPUs; on any other it means nothing. The reader of sysfs
// warns of GPUs that the driver does not list, so this warns of those it lists.
func gpusUnasked(o outcome, live bool) outcome {
	o.apply = func(t *topo.Topology, r *topo.SourceReport) {
		var mute []string
		for i := range t.GPUs {
			if g := &t.GPUs[i]; g.Vendor == vendorNVIDIA && g.KnownFrom == "proc" {
				mute = append(mute, string(g.ID))
			}
		}
		switch {
		case len(mute) == 0:
		case live:
			t.Warnings = append(t.Warnings, topo.Warning{
				Code: topo.CodeDriverOnly, Source: topo.SourceNVML,
				Detail: fmt.Sprintf("%s: NVML was not asked (%s): UUIDs, NVLink and peer access are unknown", strings.Join(mute, ", "), r.Detail),
			})
		default:
			t.Host.Lacks = append(t.Host.Lacks, "UUIDs, NVLink and peer access of the NVIDIA GPUs: no NVML answers were recorded")
		}
	}
	return o
}

// checkGPUs refuses a recorded report whose size makes no sense.
func checkGPUs(r *replies.GPUReport) error {
	if len(r.GPUs) > maxGPUs {
		return fmt.Errorf("%d GPUs, more than %d", len(r.GPUs), maxGPUs)
	}
	if len(r.Warnings) > maxWarnings {
		return fmt.Errorf("%d warnings, more than %d", len(r.Warnings), maxWarnings)
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		if len(g.NVLinks) > maxNVLinks || len(g.P2P) > maxGPUs || g.MIG != nil && len(g.MIG.Instances) > maxGPUs {
			return fmt.Errorf("GPU %d: more NVLinks, peers or MIG devices than a GPU can have", g.Index)
		}
	}
	return nil
}
