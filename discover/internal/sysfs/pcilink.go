package sysfs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// linkFile is one attribute of a PCIe link and what it sets. raw keeps a speed
// that could not be understood.
type linkFile struct {
	name  string
	value func(*topo.PCILink) **int
	raw   func(*topo.PCILink) *string
}

// linkFiles are in the order of linkState's bits. A function without the first
// two has no link, as most functions of a server.
// Source: Documentation/ABI/testing/sysfs-bus-pci.
var linkFiles = [4]linkFile{
	{"current_link_speed", func(l *topo.PCILink) **int { return &l.SpeedMTs }, func(l *topo.PCILink) *string { return &l.RawSpeed }},
	{"max_link_width", func(l *topo.PCILink) **int { return &l.MaxWidth }, nil},
	{"current_link_width", func(l *topo.PCILink) **int { return &l.Width }, nil},
	{"max_link_speed", func(l *topo.PCILink) **int { return &l.MaxSpeedMTs }, func(l *topo.PCILink) *string { return &l.RawMaxSpeed }},
}

const linkWhere = "current_link_speed current_link_width max_link_speed max_link_width"

// linkState says which of a device's link files are there, one bit each.
type linkState uint8

const allLinkFiles linkState = 1<<len(linkFiles) - 1

// parseLinkSpeed reads "32.0 GT/s PCIe", "8 GT/s" or "Unknown" and gives mega
// transfers per second, 0 where the kernel does not know.
func parseLinkSpeed(s string) (int, error) {
	if s == "Unknown" || s == "Unknown speed" {
		return 0, nil
	}
	digits := len(s) - len(strings.TrimLeft(s, "0123456789."))
	unit, _, _ := strings.Cut(strings.TrimLeft(s[digits:], " "), " ")
	if !strings.EqualFold(unit, "GT/s") {
		return 0, fmt.Errorf("%q: unknown unit", clip(s))
	}
	gts, err := strconv.ParseFloat(s[:digits], 64)
	if err != nil || gts <= 0 || gts > 1000 {
		return 0, fmt.Errorf("%q: not a speed in GT/s", clip(s))
	}
	return int(gts*1000 + 0.5), nil
}

// parseLinkWidth reads a number of lanes; 0 and 255 mean that the kernel does
// not know, and give 0.
func parseLinkWidth(s string) (int, error) {
	n, err := parseUint(s, 255)
	if err != nil || n > 32 && n != 255 {
		return 0, fmt.Errorf("%q: want a number of lanes from 1 to 32", clip(s))
	}
	if n == 255 {
		n = 0
	}
	return n, nil
}

// readLink reads a function's link files. A function that has none of them has no
// PCIe link: it is conventional PCI, or part of the root complex.
func (r *reader) readLink(f files) (*topo.PCILink, linkState) {
	var link topo.PCILink
	var state linkState
	for i, lf := range linkFiles {
		if i == 2 && state == 0 {
			return nil, 0
		}
		s, there, ok := f.lookup(lf.name, optional)
		if there {
			state |= 1 << i
		}
		if ok {
			lf.set(f, &link, s)
		}
	}
	f.fact(true, "link", linkWhere)
	return &link, state
}

// set reads the text of a link file into the link.
func (lf linkFile) set(f files, link *topo.PCILink, s string) {
	parse := parseLinkWidth
	if lf.raw != nil {
		parse = parseLinkSpeed
	}
	n, err := parse(s)
	if err != nil {
		f.warn(topo.CodeMalformed, lf.name, err.Error())
		if lf.raw != nil {
			*lf.raw(link) = clip(s)
		}
	}
	if n > 0 {
		*lf.value(link) = &n
	}
}

// completeLinks handles missing link files: it reads configuration space instead,
// and warns if a link has some of the files but not all.
func (r *reader) completeLinks() {
	var have linkState
	for _, s := range r.pci.linkFiles {
		have |= s
	}
	absent := [len(linkFiles)][]int{}
	for i, s := range r.pci.linkFiles {
		if s == 0 && have != 0 {
			s = r.otherLinkFiles(i)
		}
		if s == allLinkFiles || (s == 0 && have != 0) {
			continue // complete, or a function without a link
		}
		r.linkFromConfig(i, s)
		for bit := range linkFiles {
			if s != 0 && s&(1<<bit) == 0 {
				absent[bit] = append(absent[bit], i)
			}
		}
	}
	for bit, devices := range absent {
		if len(devices) > 1 && have&(1<<bit) == 0 { // an old kernel, or a frugal capture
			f := r.functionFiles(&r.t.PCIDevices[devices[0]])
			f.subject = ""
			f.warn(topo.CodeMissing, linkFiles[bit].name, fmt.Sprintf("no such file, nor for any other of %d functions with a link", len(devices)))
			continue
		}
		for _, i := range devices {
			r.functionFiles(&r.t.PCIDevices[i]).warn(topo.CodeMissing, linkFiles[bit].name, "no such file")
		}
	}
}

// otherLinkFiles looks for the link files that readLink skips for a function that
// seems to have no link. It matters for storage, network, display and accelerator
// functions, which may lack only the first two files.
func (r *reader) otherLinkFiles(i int) (state linkState) {
	d := &r.t.PCIDevices[i]
	if len(d.Class) < 4 || !slices.Contains([]topo.HexID{"0x01", "0x02", "0x03", "0x0b", "0x12"}, d.Class[:4]) {
		return 0
	}
	f := r.functionFiles(d)
	var link topo.PCILink
	for bit := 2; bit < len(linkFiles); bit++ {
		s, there, ok := f.lookup(linkFiles[bit].name, optional)
		if there {
			state |= 1 << bit
		}
		if ok {
			linkFiles[bit].set(f, &link, s)
		}
	}
	if state != 0 {
		d.Link = &link
		d.Facts.Set("link", topo.SourceSysfs, linkWhere)
	}
	return state
}

// linkFromConfig takes the values of missing link files from the PCI Express
// capability, if configuration space can be read that far.
func (r *reader) linkFromConfig(i int, state linkState) {
	d := &r.t.PCIDevices[i]
	if d.PF != "" {
		return // a virtual function's registers read as zero
	}
	f := r.functionFiles(d)
	info := r.readConfig(f, d)
	if info == nil || info.link == nil {
		return
	}
	if d.Link == nil {
		d.Link = &topo.PCILink{}
	}
	for bit, lf := range linkFiles {
		if state&(1<<bit) == 0 {
			*lf.value(d.Link) = *lf.value(info.link)
		}
	}
	d.Facts.Set("link", topo.SourceConfig, "config")
}
