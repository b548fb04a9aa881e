//go:build cgo && linux && (amd64 || arm64)

package verbs_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/topoctl/topoctl/internal/verbs"
	"github.com/topoctl/topoctl/internal/verbs/verbsfake"
)

// failed checks that an error is of a verb, with its errno.
func failed(t *testing.T, err error, verb string, errno syscall.Errno) *verbs.Error {
	t.Helper()
	var e *verbs.Error
	if !errors.As(err, &e) || e.Verb != verb || !errors.Is(err, errno) {
		t.Fatalf("%v is not %s: %v", err, verb, errno)
	}
	if e.Device == "" || !strings.Contains(e.Error(), verb) || !strings.Contains(e.Error(), e.Device) {
		t.Fatalf("the text lacks verb or device: %v", e)
	}
	return e
}

// Every verb that fails gives its name and errno, leaves nothing behind (fabric checks),
// and the next try works.
func TestEachVerbFails(t *testing.T) {
	const errno = syscall.ENXIO
	for _, c := range []struct {
		verb  string
		calls func(t *testing.T, f *verbsfake.Fabric, s *side) error
	}{
		{"ibv_query_port", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { _, err := s.dev.QueryPort(1); return err }},
		{"ibv_query_pkey", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { _, err := s.dev.PKeys(1); return err }},
		{"ibv_alloc_pd", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { _, err := s.dev.AllocPD(); return err }},
		{"ibv_reg_mr", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error {
			_, err := s.pd.Register(addr(s.mem), 4096, 0, allRights)
			return err
		}},
		{"ibv_reg_dmabuf_mr", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error {
			_, err := s.pd.RegisterDMABuf(0, 0, 4096, 0, allRights)
			return err
		}},
		{"ibv_create_comp_channel", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { _, err := s.dev.NewCQ(1); return err }},
		{"ibv_create_cq", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { _, err := s.dev.NewCQ(1); return err }},
		{"ibv_poll_cq", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error {
			_, err := s.cq.Poll(make([]verbs.WC, 1))
			return err
		}},
		{"ibv_req_notify_cq", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { return s.cq.Arm() }},
		{"ibv_create_qp", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error {
			_, err := s.pd.NewQP(s.cq, verbs.QPOptions{MaxSend: 1, MaxSGE: 1})
			return err
		}},
		{"ibv_modify_qp", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { return s.qp.Init(1, 0, 0) }},
		{"ibv_query_qp", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { _, err := s.qp.State(); return err }},
		{"ibv_destroy_qp", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { return s.qp.Destroy() }},
		{"ibv_dereg_mr", func(_ *testing.T, _ *verbsfake.Fabric, s *side) error { return s.mr.Close() }},
		{"ibv_destroy_cq", func(_ *testing.T, f *verbsfake.Fabric, s *side) error {
			_ = s.qp.Destroy()
			return s.cq.Close()
		}},
		{"ibv_destroy_comp_channel", func(_ *testing.T, f *verbsfake.Fabric, s *side) error {
			_ = s.qp.Destroy()
			err := s.cq.Close()
			// The queue is gone, its channel is not.
			if _, e := s.pd.NewQP(s.cq, verbs.QPOptions{MaxSend: 1, MaxSGE: 1}); !errors.Is(e, verbs.ErrClosed) {
				return e
			}
			return err
		}},
		{"ibv_dealloc_pd", func(_ *testing.T, f *verbsfake.Fabric, s *side) error {
			return errors.Join(s.qp.Destroy(), s.mr.Close(), s.pd.Close())
		}},
		{"ibv_close_device", func(_ *testing.T, f *verbsfake.Fabric, s *side) error {
			return errors.Join(s.qp.Destroy(), s.mr.Close(), s.pd.Close(), s.cq.Close(), s.dev.Close())
		}},
		{"ibv_get_async_event", func(_ *testing.T, f *verbsfake.Fabric, s *side) error {
			f.Event("a", verbs.EventSMChange, 1)
			_, err := s.dev.NextEvent()
			return err
		}},
		{"ibv_open_device", func(_ *testing.T, f *verbsfake.Fabric, _ *side) error { _, err := f.Lib().Open("a"); return err }},
		{"ibv_query_device", func(_ *testing.T, f *verbsfake.Fabric, _ *side) error { _, err := f.Lib().Open("a"); return err }},
		{"ibv_get_device_list", func(_ *testing.T, f *verbsfake.Fabric, _ *side) error { _, err := f.Lib().Devices(); return err }},
	} {
		t.Run(c.verb, func(t *testing.T) {
			f := fabric(t, verbsfake.Options{})
			s := open(t, f.Lib("a"), "a", 1<<16)
			f.Fail("a", c.verb, 1, errno)
			failed(t, c.calls(t, f, s), c.verb, errno)
		})
	}
}

func TestRegisterSaysWhy(t *testing.T) {
	f := fabric(t, verbsfake.Options{Devices: []verbsfake.Device{{
		Name: "a", Limits: verbs.DeviceLimits{MaxMRBytes: 1 << 20, MaxMR: 3}, Ports: []verbsfake.Port{{Link: verbs.LinkInfiniBand, LID: 1, GIDs: []verbs.GID{{Raw: [16]byte{0xfe, 0x80}}}}},
	}}})
	s := open(t, f.Lib(), "a", 1<<16)
	mem := pages(t, 2<<20)
	_, err := s.pd.Register(addr(mem), 2<<20, 0, allRights)
	if e := failed(t, err, "ibv_reg_mr", syscall.EINVAL); !strings.Contains(e.What, "2097152 bytes") || !strings.Contains(e.What, "remote write") {
		t.Errorf("what was asked for is not said: %v", e)
	}
	_, err = s.pd.Register(addr(mem), 4096, 12, allRights)
	failed(t, err, "ibv_reg_mr", syscall.EINVAL) // other offset in the page
	_, err = s.pd.Register(addr(mem), 4096, 0, verbs.RemoteWrite)
	failed(t, err, "ibv_reg_mr", syscall.EINVAL)
	hole := pages(t, 1<<16)
	gone := addr(hole)
	ok(t, unix.Munmap(hole[:1<<16:1<<16]))
	_, err = s.pd.Register(gone, 4096, 0, allRights)
	failed(t, err, "ibv_reg_mr", syscall.EFAULT)
	_, err = s.pd.RegisterDMABuf(0, 0, 4096, 0, allRights)
	failed(t, err, "ibv_reg_dmabuf_mr", syscall.EOPNOTSUPP)
	f.Memlock("a", 1<<17)
	_, err = s.pd.Register(addr(mem), 1<<17, 0, allRights)
	e := failed(t, err, "ibv_reg_mr", syscall.ENOMEM)
	if !strings.Contains(e.Advice, "RLIMIT_MEMLOCK") || !strings.Contains(err.Error(), e.Advice) {
		t.Errorf("no advice about locked memory: %v", err)
	}
}

func TestMemlockAdvice(t *testing.T) {
	few := verbs.RegisterAdvice(syscall.ENOMEM, 65536)
	for _, word := range []string{"65536 bytes", "ulimit -l unlimited", "LimitMEMLOCK=infinity", "CAP_IPC_LOCK"} {
		if !strings.Contains(few, word) {
			t.Errorf("%q lacks %q", few, word)
		}
	}
	if all := verbs.RegisterAdvice(syscall.ENOMEM, math.MaxUint64); strings.Contains(all, "raise") || all == "" {
		t.Errorf("with no limit: %q", all)
	}
	if other := verbs.RegisterAdvice(syscall.EFAULT, 65536); other != "" {
		t.Errorf("EFAULT: %q", other)
	}
}

// An object that is not laid out as expected is refused. It stays behind: nothing of it
// can be trusted enough to end it, so this fabric is not checked for what is left.
func TestABILies(t *testing.T) {
	use := map[verbsfake.Lie]func(t *testing.T, lib *verbs.Lib) error{}
	for _, l := range []verbsfake.Lie{verbsfake.LieDevice, verbsfake.LieOps, verbsfake.LieCmdFD, verbsfake.LieAsyncFD, verbsfake.LieVectors} {
		use[l] = func(_ *testing.T, lib *verbs.Lib) error { _, err := lib.Open("a"); return err }
	}
	for l, call := range use {
		f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a", 1)}})
		f.Lie("a", l)
		if err := call(t, f.Lib()); !errors.Is(err, verbs.ErrABI) {
			t.Errorf("lie %d: %v", l, err)
		}
		f.Close()
	}
	for l, call := range map[verbsfake.Lie]func(d *verbs.Device, pd *verbs.PD, cq *verbs.CQ) error{
		verbsfake.LiePD:      func(d *verbs.Device, _ *verbs.PD, _ *verbs.CQ) error { _, err := d.AllocPD(); return err },
		verbsfake.LieChannel: func(d *verbs.Device, _ *verbs.PD, _ *verbs.CQ) error { _, err := d.NewCQ(4); return err },
		verbsfake.LieCQ:      func(d *verbs.Device, _ *verbs.PD, _ *verbs.CQ) error { _, err := d.NewCQ(4); return err },
		verbsfake.LieMR: func(_ *verbs.Device, pd *verbs.PD, _ *verbs.CQ) error {
			_, err := pd.Register(addr(pages(t, 4096)), 4096, 0, 0)
			return err
		},
		verbsfake.LieQP: func(_ *verbs.Device, pd *verbs.PD, cq *verbs.CQ) error {
			_, err := pd.NewQP(cq, verbs.QPOptions{MaxSend: 1, MaxSGE: 1})
			return err
		},
	} {
		f := verbsfake.New(verbsfake.Options{Devices: []verbsfake.Device{verbsfake.RoCE("a", 1)}})
		d := must(f.Lib().Open("a"))(t)
		pd, cq := must(d.AllocPD())(t), must(d.NewCQ(4))(t)
		f.Lie("a", l)
		if err := call(d, pd, cq); !errors.Is(err, verbs.ErrABI) {
			t.Errorf("lie %d: %v", l, err)
		}
		f.Close()
	}
}

func TestOldLibraries(t *testing.T) {
	for missing := verbsfake.Missing(0); missing <= verbsfake.NoIOVA; missing++ {
		f := fabric(t, verbsfake.Options{Missing: missing, Devices: []verbsfake.Device{{Name: "a", DMABuf: true,
			Ports: []verbsfake.Port{{Link: verbs.LinkInfiniBand, LID: 3, GIDs: []verbs.GID{{Index: 0, Raw: [16]byte{1}}, {Index: 2, Raw: [16]byte{2}}}}}}}})
		d := must(f.Lib().Open("a"))(t)
		pd := must(d.AllocPD())(t)
		mem := pages(t, 8192)
		// What a library cannot, it says; what is optional is left out.
		moved, err := pd.Register(addr(mem), 8192, 1<<21, allRights)
		if missing >= verbsfake.NoIOVA {
			failed(t, err, "ibv_reg_mr", syscall.ENOSYS)
		} else {
			ok(t, err)
			ok(t, moved.Close())
		}
		same := must(pd.Register(addr(mem), 8192, uint64(addr(mem)), allRights))(t)
		ok(t, same.Close())
		fd := must(unix.MemfdCreate("dmabuf", 0))(t)
		ok(t, unix.Ftruncate(fd, 8192))
		buf, err := pd.RegisterDMABuf(fd, 4096, 4096, 0, allRights)
		if missing >= verbsfake.NoDMABuf {
			failed(t, err, "ibv_reg_dmabuf_mr", syscall.ENOSYS)
		} else {
			ok(t, err)
			ok(t, buf.Close())
		}
		ok(t, unix.Close(fd))
		gids := must(d.GIDs(1))(t)
		if len(gids) != 2 || gids[1].Index != 2 || gids[1].Raw[0] != 2 || gids[1].Type != verbs.GIDInfiniBand {
			t.Errorf("missing %d: %+v", missing, gids)
		}
		ok(t, pd.Close())
		ok(t, d.Close())
	}
}

// Without the table of GIDs, an Ethernet port needs sysfs to know types.
func TestGIDTypesUnknown(t *testing.T) {
	f := fabric(t, verbsfake.Options{Missing: verbsfake.NoGIDTable, Devices: []verbsfake.Device{verbsfake.RoCE("topoctl-none", 1, "10.0.0.1")}})
	d := must(f.Lib().Open("topoctl-none"))(t)
	if g, err := d.GIDs(1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, %v", g, err)
	}
	ok(t, d.Close())
}

func TestNoLibraryNoDevice(t *testing.T) {
	f := fabric(t, verbsfake.Options{})
	if list := must(f.Lib("b").Devices())(t); len(list) != 1 || list[0].Name != "b" || list[0].GUID != 0xb {
		t.Errorf("%+v", list)
	}
	_, err := f.Lib("b").Open("a")
	failed(t, err, "ibv_open_device", syscall.ENODEV)
	f.Fail("", "ibv_get_device_list", 1, syscall.ENOSYS)
	if _, err := f.Lib().Devices(); !errors.Is(err, verbs.ErrUnavailable) || !strings.Contains(err.Error(), "ib_uverbs") {
		t.Errorf("no RDMA in the kernel: %v", err)
	}
}

// The library of this machine, if there is one, is loaded and has what is relied upon.
func TestLoad(t *testing.T) {
	installed, _ := filepath.Glob("/usr/lib/*/libibverbs.so.1")
	lib, err := verbs.Load()
	if err != nil {
		if !errors.Is(err, verbs.ErrUnavailable) || !strings.Contains(err.Error(), "libibverbs") {
			t.Fatal(err)
		}
		if len(installed) > 0 {
			t.Fatalf("%v is installed: %v", installed, err)
		}
		t.Skipf("libibverbs1 is not installed: %v", err)
	}
	devices, err := lib.Devices()
	if err != nil && !errors.Is(err, verbs.ErrUnavailable) {
		t.Fatal(err)
	}
	t.Logf("devices: %v, %v", devices, err)
}
