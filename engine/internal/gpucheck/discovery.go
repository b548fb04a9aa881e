//go:build cgo && linux

package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/formats/texts"
	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/cpuset"
	"github.com/topoctl/topoctl/internal/units"
)

// smiLog is the part of "nvidia-smi -q -x" that we tell as well. Its form is that of NVIDIA's
// nvsmi_device_v12.dtd; a field that a GPU does not have reads "N/A".
type smiLog struct {
	Driver string `xml:"driver_version"`
	CUDA   string `xml:"cuda_version"`
	GPUs   []struct {
		ID      string `xml:"id,attr"`
		Name    string `xml:"product_name"`
		UUID    string `xml:"uuid"`
		Serial  string `xml:"serial"`
		Minor   string `xml:"minor_number"`
		MIG     string `xml:"mig_mode>current_mig"`
		MaxGen  string `xml:"pci>pci_gpu_link_info>pcie_gen>max_link_gen"`
		MaxWide string `xml:"pci>pci_gpu_link_info>link_widths>max_link_width"`
		Width   string `xml:"pci>pci_gpu_link_info>link_widths>current_link_width"`
		Memory  string `xml:"fb_memory_usage>total"`
	} `xml:"gpu"`
}

// known is a text of nvidia-smi's, "" where it says that there is none.
func known(text string) string {
	if text == "N/A" || text == "[N/A]" || strings.HasPrefix(text, "Unknown") {
		return ""
	}
	return text
}

// discovery compares what we say of the GPUs with what the driver's own tools and files say.
func discovery(ctx context.Context, c *check) error {
	data, err := c.topoctl(ctx, "discover")
	if err != nil {
		return err
	}
	t, err := topo.Decode(data)
	if err != nil {
		return err
	}
	if len(t.GPUs) == 0 {
		return cannot("topoctl discover finds no GPU")
	}
	steps := []func(context.Context, *check, *topo.Topology) error{compareLog, compareMatrix, compareProc, answers, capture}
	for _, step := range steps {
		err := step(ctx, c, t)
		var unchecked *uncheckedError
		switch {
		case errors.As(err, &unchecked):
			c.cannotf("%v", err)
		case err != nil:
			c.wrongf("%v", err)
		}
	}
	return nil
}

// smi runs nvidia-smi.
func smi(ctx context.Context, c *check, args ...string) ([]byte, error) {
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		return nil, cannot("nvidia-smi is not installed")
	}
	return c.run(ctx, nil, "nvidia-smi", args...)
}

func compareLog(ctx context.Context, c *check, t *topo.Topology) error {
	data, err := smi(ctx, c, "-q", "-x")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.out, "nvidia-smi.xml"), anonymous(data), 0o644); err != nil {
		return err
	}
	var log smiLog
	if err := xml.Unmarshal(data, &log); err != nil {
		return fmt.Errorf("nvidia-smi -q -x: %w", err)
	}
	c.equal("driver", t.Host.GPUDriver, log.Driver)
	index := topo.NewIndex(t)
	found := 0
	for _, theirs := range log.GPUs {
		at, err := topo.ParseBDF(theirs.ID)
		if err != nil {
			return fmt.Errorf("nvidia-smi -q -x: gpu %q: %w", theirs.ID, err)
		}
		g := index.GPUAt(at)
		if g == nil {
			c.wrongf("no GPU at %s, which nvidia-smi has", at)
			continue
		}
		found++
		c.equal(string(g.ID)+" model", g.Model, theirs.Name)
		c.equal(string(g.ID)+" uuid", g.UUID, known(theirs.UUID))
		c.equal(string(g.ID)+" serial", g.Serial, known(theirs.Serial))
		c.equal(string(g.ID)+" minor", number(g.Minor), known(theirs.Minor))
		c.equal(string(g.ID)+" MIG", g.MIG != nil && g.MIG.Enabled, theirs.MIG == "Enabled")
		if g.MemoryBytes == nil {
			c.wrongf("%s: its memory is not known", g.ID)
		} else {
			c.equal(string(g.ID)+" memory", fmt.Sprintf("%d MiB", *g.MemoryBytes>>20), theirs.Memory)
		}
		compareLink(c, g, index.PCIDevice(g.PCI), theirs.MaxGen, theirs.MaxWide, theirs.Width)
	}
	c.equal("GPUs that the driver shows", found, len(log.GPUs))
	return nil
}

// number is a number as text, "" without one.
func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// compareLink leaves the current speed alone: it follows the load.
func compareLink(c *check, g *topo.GPU, d *topo.PCIDevice, maxGen, maxWidth, width string) {
	if d == nil || d.Link == nil {
		c.cannotf("%s: the link: no PCI device here", g.ID)
		return
	}
	if d.Link.MaxSpeedMTs != nil {
		c.equal(string(g.ID)+" link generation, at most", units.PCIeGen(*d.Link.MaxSpeedMTs), "gen"+known(maxGen))
	}
	c.equal(string(g.ID)+" link width, at most", number(d.Link.MaxWidth), strings.TrimSuffix(known(maxWidth), "x"))
	c.equal(string(g.ID)+" link width", number(d.Link.Width), strings.TrimSuffix(known(width), "x"))
}

// compareMatrix compares classes and affinities with those of "nvidia-smi topo -m".
func compareMatrix(ctx context.Context, c *check, t *topo.Topology) error {
	data, err := smi(ctx, c, "topo", "-m")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "nvidia-smi topo -m:\n%s", data)
	theirs, err := texts.Decode(data)
	if err != nil {
		return fmt.Errorf("nvidia-smi topo -m: %w", err)
	}
	if len(theirs.GPUs) != len(t.GPUs) {
		return cannot("nvidia-smi topo -m shows %d GPUs, topoctl %d", len(theirs.GPUs), len(t.GPUs))
	}
	kinds := []topo.Kind{topo.KindGPU}
	a, b := t.Matrix(kinds, kinds), theirs.Matrix(kinds, kinds)
	for i := range a.Rows {
		for j := range a.Cols {
			c.equal(fmt.Sprintf("%s to %s", a.Rows[i].ID, a.Cols[j].ID), a.Class[i][j], b.Class[i][j])
		}
	}
	for i := range t.GPUs {
		ours, err := cpuset.Parse(t.GPUs[i].CPUAffinity)
		if err != nil {
			return err
		}
		smis, err := cpuset.Parse(theirs.GPUs[i].CPUAffinity)
		if err != nil {
			return err
		}
		c.equal(string(t.GPUs[i].ID)+" CPU affinity", ours, smis)
		if theirs.GPUs[i].NUMA == nil {
			c.cannotf("%s: nvidia-smi tells no NUMA node", t.GPUs[i].ID)
			continue
		}
		c.equal(string(t.GPUs[i].ID)+" NUMA node", number(t.GPUs[i].NUMA), number(theirs.GPUs[i].NUMA))
	}
	return nil
}

// compareProc compares with /proc/driver/nvidia/gpus/*/information.
func compareProc(_ context.Context, c *check, t *topo.Topology) error {
	files, err := filepath.Glob("/proc/driver/nvidia/gpus/*/information")
	if err != nil || len(files) == 0 {
		return cannot("/proc/driver/nvidia/gpus is not there")
	}
	index := topo.NewIndex(t)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		facts := map[string]string{}
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(line, ":"); ok {
				facts[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
		at, err := topo.ParseBDF(facts["Bus Location"])
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		g := index.GPUAt(at)
		if g == nil {
			c.wrongf("no GPU at %s, which %s has", at, file)
			continue
		}
		c.equal(string(g.ID)+" model in /proc", g.Model, facts["Model"])
		c.equal(string(g.ID)+" uuid in /proc", g.UUID, facts["GPU UUID"])
		c.equal(string(g.ID)+" minor in /proc", number(g.Minor), facts["Device Minor"])
	}
	return nil
}

// answers prints what a user sees first, for a person to read.
func answers(ctx context.Context, c *check, _ *topo.Topology) error {
	for _, args := range [][]string{{"doctor", "--all"}, {"path", "gpu:0"}, {"matrix"}} {
		out, err := c.topoctl(ctx, args...)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, "topoctl %s:\n%s", strings.Join(args, " "), out)
	}
	return nil
}

// capture leaves a redacted capture, which becomes a fixture, and reads it again.
func capture(ctx context.Context, c *check, t *topo.Topology) error {
	file := filepath.Join(c.out, "host.capture")
	if _, err := c.topoctl(ctx, "discover", "--redact", "--capture", file); err != nil {
		return err
	}
	data, err := c.topoctl(ctx, "discover", "--from", file)
	if err != nil {
		return err
	}
	again, err := topo.Decode(data)
	if err != nil {
		return err
	}
	c.equal("GPUs in the capture", len(again.GPUs), len(t.GPUs))
	for _, g := range t.GPUs {
		for what, secret := range map[string]string{"UUID": g.UUID, "serial number": g.Serial} {
			if secret != "" && strings.Contains(string(data), secret) {
				c.wrongf("the redacted capture has the %s of %s", what, g.ID)
			}
		}
	}
	return nil
}

// anonymous takes out what tells which GPU it was.
func anonymous(xml []byte) []byte {
	return identifiers.ReplaceAll(xml, []byte("<$1>redacted</$1>"))
}

var identifiers = regexp.MustCompile(`<(serial|uuid|board_id|board_serial_number|pdi|gpu_uuid|chassis_serial_number|platform_info_serial)>[^<]*</[a-z_]+>`)
