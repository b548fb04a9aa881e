//go:build cgo && linux && (amd64 || arm64)

package verbscheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/replies"
	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// fabric is two devices, the second of which registers dma-bufs.
func fabric(t *testing.T) (*verbsfake.Fabric, *Source) {
	t.Helper()
	second := verbsfake.RoCE("mlx5_10", 2, "10.2.0.5", "10.2.0.6")
	second.DMABuf = true
	second.Ports[0].MTU = 1024
	second.Limits.MaxMRBytes = 1 << 30
	f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{second, verbsfake.InfiniBand("mlx5_2", 1, 7)}})
	t.Cleanup(f.Close)
	return f, &Source{load: func() (*verbs.Lib, error) { return f.Lib(), nil }, limit: time.Minute}
}

// well is what both devices say where nothing is wrong.
func well() []replies.VerbsDevice {
	took := []replies.VerbsRegistration{{Bytes: 4096}, {Bytes: 16 << 20}}
	return []replies.VerbsDevice{
		{Name: "mlx5_2", MaxMRBytes: new(int64(1 << 40)), Ports: []replies.VerbsPort{{Number: 1, ActiveMTUBytes: 4096, MaxMTUBytes: 4096, GIDs: 1}}, Registrations: took, DMABuf: new(false)},
		{Name: "mlx5_10", MaxMRBytes: new(int64(1 << 30)), Ports: []replies.VerbsPort{{Number: 1, ActiveMTUBytes: 1024, MaxMTUBytes: 4096, GIDs: 6}}, Registrations: took, DMABuf: new(true)},
	}
}

func TestTry(t *testing.T) {
	failed := func(verb, errno string) *replies.VerbsError { return &replies.VerbsError{Verb: verb, Errno: errno} }
	for name, c := range map[string]struct {
		breaks func(*verbsfake.Fabric)
		edit   func(*replies.VerbsDevice) // of mlx5_10
	}{
		"well": {func(*verbsfake.Fabric) {}, func(*replies.VerbsDevice) {}},
		"not allowed": {func(f *verbsfake.Fabric) { f.Fail("mlx5_10", "ibv_open_device", 1, syscall.EACCES) },
			func(a *replies.VerbsDevice) {
				*a = replies.VerbsDevice{Name: "mlx5_10", Open: failed("ibv_open_device", "EACCES")}
			}},
		"no limits": {func(f *verbsfake.Fabric) { f.Fail("mlx5_10", "ibv_query_device", 1, syscall.EIO) },
			func(a *replies.VerbsDevice) {
				*a = replies.VerbsDevice{Name: "mlx5_10", Open: failed("ibv_query_device", "EIO")}
			}},
		"another layout": {func(f *verbsfake.Fabric) { f.Lie("mlx5_10", verbsfake.LieOps) },
			func(a *replies.VerbsDevice) {
				*a = replies.VerbsDevice{Name: "mlx5_10", Open: failed("ibv_open_device", "")}
			}},
		"no port": {func(f *verbsfake.Fabric) { f.Fail("mlx5_10", "ibv_query_port", 1, syscall.ENODEV) },
			func(a *replies.VerbsDevice) {
				a.Ports = []replies.VerbsPort{{Number: 1, GIDs: -1, Failed: failed("ibv_query_port", "ENODEV")}}
			}},
		"no domain": {func(f *verbsfake.Fabric) { f.Fail("mlx5_10", "ibv_alloc_pd", 1, syscall.EAGAIN) },
			func(a *replies.VerbsDevice) {
				a.Domain, a.Registrations, a.DMABuf = failed("ibv_alloc_pd", "EAGAIN"), nil, nil
			}},
		"no memory at all": {func(f *verbsfake.Fabric) { f.Fail("mlx5_10", "ibv_reg_mr", 1, syscall.EPERM) },
			func(a *replies.VerbsDevice) {
				a.Registrations, a.DMABuf = []replies.VerbsRegistration{{Bytes: 4096, Failed: failed("ibv_reg_mr", "EPERM")}}, nil
			}},
		"little memory": {func(f *verbsfake.Fabric) { f.Memlock("mlx5_10", 64<<10) },
			func(a *replies.VerbsDevice) {
				a.Registrations, a.DMABuf = []replies.VerbsRegistration{{Bytes: 4096}, {Bytes: 16 << 20, Failed: failed("ibv_reg_mr", "ENOMEM")}}, nil
			}},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := fabric(t)
			c.breaks(f)
			want := &replies.VerbsReport{Devices: well()}
			c.edit(&want.Devices[1])
			got := s.Try(t.Context())
			for i := range got.Devices {
				forgetText(t, &got.Devices[i])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if left := f.Objects("mlx5_2"); left != (verbsfake.Objects{}) {
				t.Errorf("left behind: %+v", left)
			}
			if left := f.Objects("mlx5_10"); left != (verbsfake.Objects{}) && name != "another layout" { // that one is not trusted to close
				t.Errorf("left behind: %+v", left)
			}
		})
	}
}

// forgetText drops the words of errors, which there must be.
func forgetText(t *testing.T, a *replies.VerbsDevice) {
	t.Helper()
	list := []*replies.VerbsError{a.Open, a.Domain}
	for i := range a.Ports {
		list = append(list, a.Ports[i].Failed)
	}
	for i := range a.Registrations {
		list = append(list, a.Registrations[i].Failed)
	}
	for _, e := range list {
		if e != nil && e.Text == "" {
			t.Errorf("%+v: no words", e)
		} else if e != nil {
			e.Text = ""
		}
	}
}

// A device that hangs costs its own answer, and it is said at what.
func TestHangs(t *testing.T) {
	f, s := fabric(t)
	asked, let := make(chan struct{}, 2), make(chan struct{})
	var left sync.WaitGroup
	left.Add(2)
	s.run = func(tr *trial, lib *verbs.Lib) {
		tr.at("ibv_open_device")
		tr.answer.DMABuf = new(true) // nobody may see this
		if tr.answer.Name == "mlx5_2" {
			asked <- struct{}{}
			<-let
			left.Done()
		}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		<-asked
		giveUp()
	}()
	if diff := cmp.Diff(replies.VerbsDevice{Name: "mlx5_2", Silent: true, Step: "ibv_open_device"}, s.one(ctx, f.Lib(), "mlx5_2")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(replies.VerbsDevice{Name: "mlx5_10", DMABuf: new(true)}, s.one(t.Context(), f.Lib(), "mlx5_10")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s.limit = time.Millisecond // the device's own, while the caller has time
	if got := s.one(t.Context(), f.Lib(), "mlx5_2"); !got.Silent {
		t.Errorf("%+v", got)
	}
	close(let)
	left.Wait()
}

// No time is left for the second device: it is not in the report.
func TestEnds(t *testing.T) {
	_, s := fabric(t)
	ctx, stop := context.WithCancel(t.Context())
	s.run = func(*trial, *verbs.Lib) { stop() }
	if got := s.Try(ctx); len(got.Devices) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestUnavailable(t *testing.T) {
	f, s := fabric(t)
	f.Fail("", "ibv_get_device_list", 1, syscall.ENOSYS)
	if got := s.Try(t.Context()); !strings.HasPrefix(got.Unavailable, "the kernel has no RDMA") || got.Devices != nil {
		t.Errorf("%+v", got)
	}
	f.Fail("", "ibv_get_device_list", 1, syscall.EIO)
	if got := s.Try(t.Context()); !strings.Contains(got.Unavailable, "ibv_get_device_list") {
		t.Errorf("%+v", got)
	}
	s.load = func() (*verbs.Lib, error) { return nil, fmt.Errorf("%w: no such file", verbs.ErrUnavailable) }
	if got := s.Try(t.Context()); got.Unavailable != "no such file" {
		t.Errorf("%+v", got)
	}
	s.load = func() (*verbs.Lib, error) { return nil, errors.New("odd") }
	if got := s.Try(t.Context()); got.Unavailable != "odd" {
		t.Errorf("%+v", got)
	}
}
