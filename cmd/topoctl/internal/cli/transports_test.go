package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/engine/transport/rdma"
)

// An engine goes on without RDMA that the host has not got, unless it was asked for by
// name.
func TestRDMAByName(t *testing.T) {
	r := RDMA{Options: rdma.Options{Devices: []string{"no_such_device"}}}
	e, err := engine.New(t.Context(), engine.Options{Transports: r.Factories("auto")})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if why := e.Unavailable(); len(why) != 1 || strings.Count(why[0].Error(), "not available") != 1 {
		t.Errorf("not asked for by name: %v", why)
	}
	_, err = engine.New(t.Context(), engine.Options{Transports: r.Factories("rdma")})
	if err == nil || !strings.Contains(err.Error(), "--transport rdma on this host: RDMA verbs are not available") {
		t.Errorf("asked for by name: %v", err)
	}
	const doctor, none = `"topoctl doctor" to see what is missing`, "this host has no RDMA device"
	if hint := Hint(err); !strings.Contains(hint, doctor) {
		t.Errorf("want %q as hint of %v, got %q", doctor, err, hint)
	}
	for x, want := range map[*topo.Topology]string{nil: doctor, {RDMADevices: make([]topo.RDMADevice, 1)}: doctor, {}: none} {
		if hint := withoutRDMA(x); !strings.Contains(hint, want) {
			t.Errorf("want %q, got %q", want, hint)
		}
	}
}

// What the flags say reaches RDMA, and a child of bench.
func TestRDMAFlags(t *testing.T) {
	parsed := func(args ...string) *RDMA {
		var x Transports
		cmd := &cobra.Command{}
		x.Add(cmd, "usage")
		if err := errors.Join(cmd.ParseFlags(args), x.Check(cmd)); err != nil {
			t.Fatal(err)
		}
		return &x.RDMA
	}
	got := parsed()
	if o := got.Options; len(o.Devices) > 0 || o.GIDIndex != nil || o.Timeout != 0 || o.RetryCount != 0 || len(got.Args()) > 0 {
		t.Errorf("defaults: %+v", o)
	}
	args := []string{"--rdma-device=mlx5_0", "--rdma-device=mlx5_2", "--rdma-gid-index=0", "--rdma-traffic-class=106",
		"--rdma-service-level=3", "--rdma-timeout=14", "--rdma-retries=5"}
	got = parsed(args...)
	o := got.Options
	if o.GIDIndex == nil || *o.GIDIndex != 0 || o.TrafficClass != 106 || o.ServiceLevel != 3 || o.Timeout != 14 || o.RetryCount != 5 || len(o.Devices) != 2 {
		t.Errorf("%+v", o)
	}
	if diff := cmp.Diff(args, got.Args()); diff != "" {
		t.Errorf("for a child (-want +got):\n%s", diff)
	}
	for names, want := range map[string]int{"auto": 3, "tcp": 1, "rdma,tcp": 2, "auto,rdma": 3} {
		if n := len(got.Factories(strings.Split(names, ",")...)); n != want {
			t.Errorf("%s: %d transports, want %d", names, n, want)
		}
	}
}

// A level is one of those that there are, and not one that a transport given by name lacks.
func TestProtectFlag(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "",
		"--protect=headers --transport=rdma":    "",
		"--protect=payload --transport=auto":    "",
		"--protect=sealed --transport=tcp":      "",
		"--protect=payload --transport=rdma":    "--protect payload and --transport rdma cannot be used together",
		"--protect=sealed --transport=tcp,rdma": "--protect sealed and --transport rdma cannot be used together",
	} {
		var x Transports
		cmd := &cobra.Command{}
		x.Add(cmd, "usage")
		err := errors.Join(cmd.ParseFlags(strings.Fields(args)), x.Check(cmd))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
