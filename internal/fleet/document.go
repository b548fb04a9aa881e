package fleet

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/pathsel/doctor"
)

// Bounds of a document: the largest clusters have some ten thousand hosts, and the largest hosts
// some two hundred devices.
const (
	maxBytes    = 1 << 30 // of a document
	MaxHosts    = 1 << 16
	maxHostJSON = 1 << 20  // of one host
	maxItemJSON = 64 << 10 // of one switch or link
	maxDevices  = 1024     // of a kind, of one host
	maxSwitches = 1 << 16
	maxLinks    = 1 << 18
	maxName     = 255
)

// Encode writes the document: a host, a link, a fact a line.
func (f *Fleet) Encode() ([]byte, error) {
	w := document.NewWriter()
	w.Field("schema", Schema)
	w.Field("tool", f.Tool)
	w.Field("captured_at", f.CapturedAt)
	if f.RailOnly {
		w.Field("rail_only", true)
	}
	document.WriteList(w, "hosts", f.Hosts)
	document.WriteList(w, "switches", f.Switches)
	document.WriteList(w, "links", f.Links)
	document.WriteList(w, "classes", f.Classes)
	document.WriteList(w, "groups", f.Groups)
	document.WriteList(w, "domains", f.Domains)
	document.WriteList(w, "facts", f.Facts)
	document.WriteList(w, "findings", f.Findings)
	document.WriteList(w, "unknown", f.Unknown)
	data, err := w.Bytes()
	if err != nil {
		return nil, pkgerr.Errorf("fleet", "encode: %w", err)
	}
	return data, nil
}

// Detect reports whether data, the beginning of a file, may be a fleet document.
func Detect(head []byte) bool { return strings.Contains(string(head), `"topoctl.fleet/`) }

// Decode reads the hosts of a document and their network. It skips the findings and the like of Build, which Rebuild
// makes again, and unknown keys. It refuses other major versions, and contents that our writers never produce and that
// would mislead a reader: hosts without a name or with the same name, documents outside of the fleet's folder, links
// between switches that are not listed.
func Decode(data []byte) (*Fleet, error) {
	if len(data) > maxBytes {
		return nil, pkgerr.Errorf("fleet", "%d bytes: at most %d are read", len(data), maxBytes)
	}
	if !utf8.Valid(data) {
		return nil, pkgerr.New("fleet", "not UTF-8: not a fleet document, or damaged")
	}
	f, in := &Fleet{}, document.NewReader(data)
	err := in.Object(0, func(key string) error {
		switch key {
		case "schema":
			if err := in.Value(&f.Schema, maxName); err != nil {
				return err
			}
			return checkSchema(f.Schema)
		case "tool":
			return in.Value(&f.Tool, maxItemJSON)
		case "captured_at":
			return in.Value(&f.CapturedAt, maxName)
		case "rail_only":
			return in.Value(&f.RailOnly, maxName)
		case "hosts":
			return document.ReadList(in, &f.Hosts, MaxHosts, maxHostJSON, (*Host).check)
		case "switches":
			return document.ReadList(in, &f.Switches, maxSwitches, maxItemJSON, (*Switch).check)
		case "links":
			return document.ReadList(in, &f.Links, maxLinks, maxItemJSON, (*Link).check)
		}
		return in.Skip()
	})
	if err == nil {
		err = in.End()
	}
	if err != nil {
		return nil, pkgerr.Errorf("fleet", "%w", in.Locate(err))
	}
	if err := checkSchema(f.Schema); err != nil {
		return nil, pkgerr.Errorf("fleet", "%w", err)
	}
	if err := f.check(); err != nil {
		return nil, pkgerr.Errorf("fleet", "%w", err)
	}
	return f, nil
}

func checkSchema(name string) error {
	return document.CheckSchema(name, Schema, "not a fleet document")
}

// check looks at the references between the parts of a document.
func (f *Fleet) check() error {
	seen := make(map[string]bool, len(f.Hosts))
	for i := range f.Hosts {
		name := f.Hosts[i].Host
		if seen[name] {
			return fmt.Errorf("host %q is listed twice", name)
		}
		seen[name] = true
	}
	switches := make(map[string]bool, len(f.Switches))
	for i := range f.Switches {
		id := f.Switches[i].ID
		if switches[id] {
			return fmt.Errorf("switch %q is listed twice", id)
		}
		switches[id] = true
	}
	for i := range f.Links {
		for _, id := range []string{f.Links[i].A, f.Links[i].B} {
			if !switches[id] {
				return fmt.Errorf("links[%d]: switch %q is not listed", i, id)
			}
		}
	}
	return nil
}

// CheckName refuses names that no host or switch can have.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name is empty")
	case len(name) > maxName:
		return fmt.Errorf("name %.40q...: %d bytes long, at most %d are read", name, len(name), maxName)
	}
	return nil
}

func (h *Host) check() error {
	if err := CheckName(h.Host); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	switch h.Status {
	case OK, Partial, NotReached:
	default:
		return fmt.Errorf("host %q: status %.40q: want %q, %q or %q", h.Host, h.Status, OK, Partial, NotReached)
	}
	if h.Document != "" && !isLocal(h.Document) {
		return fmt.Errorf("host %q: document %.80q: want the path of a file below the fleet's own folder", h.Host, h.Document)
	}
	for _, list := range []struct {
		what string
		n    int
	}{{"ports", len(h.Ports)}, {"GPUs", len(h.GPUs)}, {"NUMA nodes", len(h.NUMA)}, {"findings", len(h.Doctor)}} {
		if list.n > maxDevices {
			return fmt.Errorf("host %q: %d %s: at most %d are read", h.Host, list.n, list.what, maxDevices)
		}
	}
	seen := map[string]bool{}
	for i := range h.Ports {
		p := &h.Ports[i]
		if err := CheckName(p.Port); err != nil {
			return fmt.Errorf("host %q: ports[%d]: %w", h.Host, i, err)
		}
		if seen[p.Port] {
			return fmt.Errorf("host %q: port %q is listed twice", h.Host, p.Port)
		}
		seen[p.Port] = true
		if err := checkRate(p.BytesPerSec); err != nil {
			return fmt.Errorf("host %q: port %q: %w", h.Host, p.Port, err)
		}
	}
	for i := range h.Doctor {
		if s := h.Doctor[i].Severity; !s.AtLeast(doctor.Info) {
			return fmt.Errorf("host %q: doctor[%d]: severity %.40q: want error, warning or info", h.Host, i, s)
		}
	}
	return nil
}

// isLocal says whether a path stays below the folder that it is relative to, on any system.
func isLocal(p string) bool {
	return p == path.Clean(p) && p != "." && !path.IsAbs(p) && p != ".." && !strings.HasPrefix(p, "../") && !strings.ContainsAny(p, "\\:\x00")
}

func (s *Switch) check() error {
	if err := CheckName(s.ID); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	const most = 31 // more than any network has
	if s.Tier != nil && (*s.Tier < 0 || *s.Tier > most) {
		return fmt.Errorf("switch %q: tier %d: want 0 to %d", s.ID, *s.Tier, most)
	}
	return nil
}

func (l *Link) check() error {
	if l.Count < 1 {
		return fmt.Errorf("count %d: want 1 or more", l.Count)
	}
	return checkRate(l.BytesPerSec)
}

func checkRate(rate *topo.Rate) error {
	const most topo.Rate = 1e15 // bytes/s
	if rate != nil && (*rate < 0 || *rate > most) {
		return fmt.Errorf("bytes_per_sec %d: want 0 to %d, or null", *rate, most)
	}
	return nil
}
