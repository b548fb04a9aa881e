package vmlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// bootLimit is how long a machine may take to its first suite. An idle machine of two
// emulated processors takes about five seconds.
const bootLimit = 100 * time.Second

// clockError is how far a machine's clock may be from ours.
const clockError = 0.03

// lab is the machines of one boot, and what they share.
type lab struct {
	o      *Options
	suites []string
	kvm    bool
	result *Result

	machines  []*machine
	cables    map[int]*Cable
	listeners []net.Listener
	wg        sync.WaitGroup // what runs for the machines

	mu       sync.Mutex
	conns    []net.Conn
	meetings map[string]*meeting
	output   sync.Mutex
}

type machine struct {
	host     int
	hardware *Machine
	dir      string
	cmd      *exec.Cmd
	errs     bytes.Buffer // what QEMU complains about
	gone     chan struct{}
	ready    chan struct{} // closed at its first suite
	monitor  chan *qmpMonitor

	// Under the lab's mutex.
	bootSeconds float64
	bootTime    time.Time // when it said so
	clock       float64   // seconds of its clock for one of ours; 0 is not known yet
	suite       string    // that it is in, "" for none
	began       time.Time
	ended       map[string]int // exit codes by suite
	dead        bool
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// boot runs the machines to their end.
func (l *lab) boot(ctx context.Context, img *Image, initrd, dir string) error {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, l.o.Limit, fmt.Errorf("the machines ran longer than %v", l.o.Limit))
	defer cancel()
	l.cables, l.meetings = map[int]*Cable{}, map[string]*meeting{}
	defer l.close()
	for i, hw := range l.o.Machines {
		m := &machine{host: i + 1, hardware: hw, dir: filepath.Join(dir, fmt.Sprint(i+1)), ended: map[string]int{},
			gone: make(chan struct{}), ready: make(chan struct{}), monitor: make(chan *qmpMonitor, 1)}
		if err := os.Mkdir(m.dir, 0o700); err != nil {
			return fmt.Errorf("vmlab: %w", err)
		}
		l.machines = append(l.machines, m)
	}
	for _, m := range l.machines {
		if err := l.start(ctx, m, img, initrd); err != nil {
			return err
		}
	}
	err := l.watch(ctx)
	l.close()
	l.result.Seconds = time.Since(start).Seconds()
	l.collect()
	return err
}

// close ends everything that runs for the machines, and waits for it.
func (l *lab) close() {
	for _, m := range l.machines {
		if m.cmd != nil {
			_ = m.cmd.Process.Kill() // it may have ended
			<-m.gone
		}
	}
	for _, ln := range l.listeners {
		_ = ln.Close() // it may be closed
	}
	for _, c := range l.cables {
		c.Close()
	}
	// What reads from a machine that is gone ends by itself, when it has read all.
	l.wg.Wait()
	for _, c := range l.conns {
		_ = c.Close() // it may be closed
	}
	l.listeners, l.conns, l.cables = nil, nil, nil
}

// start opens what QEMU dials, and QEMU.
func (l *lab) start(ctx context.Context, m *machine, img *Image, initrd string) error {
	boot := Boot{Host: m.host, KVM: l.kvm, Kernel: img.Kernel, Initrd: initrd, Console: m.path("console"), Monitor: m.path("monitor"),
		Ports: map[string]string{}, Rail: func(rail int) string { return m.path(fmt.Sprint("rail", rail)) }}
	handlers := map[string]func(net.Conn){boot.Monitor: func(c net.Conn) { l.greet(m, c) }}
	for _, name := range portNames {
		boot.Ports[name] = m.path("port." + name)
		handlers[boot.Ports[name]] = func(c net.Conn) { l.serve(ctx, m, c) }
		if name == "output" {
			handlers[boot.Ports[name]] = func(c net.Conn) { l.print(m, c) }
		}
	}
	nics := m.hardware.NICs()
	if m.hardware.Management {
		nics = append(nics, NIC{Rail: ManagementRail})
	}
	for _, n := range nics {
		if l.cables[n.Rail] == nil {
			l.cables[n.Rail] = newCable()
		}
		cable := l.cables[n.Rail]
		handlers[boot.Rail(n.Rail)] = func(c net.Conn) { _ = cable.Plug(m.host, c) } // one NIC dials it, once
	}
	for at, handle := range handlers {
		if err := l.listen(at, handle); err != nil {
			return err
		}
	}
	var err error
	if boot.TSCKHz, err = tscKHz(); err != nil {
		return err
	}
	args, err := qemuArgs(m.hardware, boot)
	if err != nil {
		return err
	}
	cmd := exec.Command(qemuProgram, args...)
	cmd.Stdout, cmd.Stderr = &m.errs, &m.errs
	cmd.SysProcAttr = child()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // see child
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // how it ended says nothing: a machine that is turned off by itself ends well
		l.died(m)
		close(m.gone)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("vmlab: %w", err)
	}
	m.cmd = cmd
	return nil
}

// listen takes the one connection that QEMU makes to a socket.
func (l *lab) listen(at string, handle func(net.Conn)) error {
	ln, err := net.Listen("unix", at)
	if err != nil {
		return fmt.Errorf("vmlab: %w", err)
	}
	l.listeners = append(l.listeners, ln)
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		c, err := ln.Accept()
		if err != nil {
			return // closed before QEMU came so far
		}
		l.mu.Lock()
		l.conns = append(l.conns, c)
		l.mu.Unlock()
		handle(c)
	}()
	return nil
}

func (l *lab) greet(m *machine, c net.Conn) {
	mon, err := newMonitor(c)
	if err != nil {
		return // QEMU ended: that is seen elsewhere
	}
	m.monitor <- mon
}

// watch waits until all machines are off.
func (l *lab) watch(ctx context.Context) error {
	boot := time.NewTimer(bootLimit)
	defer boot.Stop()
	for _, m := range l.machines {
		select {
		case <-m.ready:
		case <-m.gone:
			select {
			case <-m.ready: // it has run all suites by now
				continue
			default:
			}
			return l.failed(m, fmt.Errorf("%w: machine %d ended before its first suite", ErrBoot, m.host))
		case <-boot.C:
			return l.failed(m, fmt.Errorf("%w: machine %d was not ready after %v", ErrBoot, m.host, bootLimit))
		case <-ctx.Done():
			return l.failed(m, context.Cause(ctx))
		}
	}
	for _, m := range l.machines {
		select {
		case <-m.gone:
		case <-ctx.Done():
			return l.failed(m, context.Cause(ctx))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all error
	for _, m := range l.machines {
		switch {
		case len(m.ended) < len(l.suites):
			all = errors.Join(all, l.failed(m, fmt.Errorf("machine %d ended in suite %q", m.host, m.suite)))
		case m.clock != 0 && math.Abs(m.clock-1) > clockError:
			all = errors.Join(all, l.failed(m, fmt.Errorf("the clock of machine %d ran %.2f times as fast as ours: nothing it measured holds", m.host, m.clock)))
		}
	}
	return all
}

// failed adds to an error what the machine said last.
func (l *lab) failed(m *machine, err error) error {
	console, _ := os.ReadFile(m.path("console")) // there may be none yet
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(console), "\r", "")), "\n")
	if len(lines) > 40 {
		lines = lines[len(lines)-40:]
	}
	text := fmt.Sprintf("vmlab: machine %d says:\n    %s", m.host, strings.Join(lines, "\n    "))
	select {
	case <-m.gone:
		text += "\n" + strings.TrimSpace(m.errs.String())
	default:
	}
	return fmt.Errorf("vmlab: %w\n%s", err, text)
}

// collect writes down how long the boot took and what the kernels said.
func (l *lab) collect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.machines {
		l.result.BootSeconds = append(l.result.BootSeconds, m.bootSeconds)
		if console, err := os.ReadFile(m.path("console")); err == nil {
			if err := l.write(fmt.Sprintf("console.%d.%d", l.result.Boots, m.host), console); err != nil {
				l.o.Log("%v", err)
			}
		}
	}
}

// print copies what the tests of a machine print, line by line.
func (l *lab) print(m *machine, c net.Conn) {
	lines := Lines(c)
	for line := range lines {
		l.output.Lock()
		fmt.Fprintf(l.o.Output, "%d| %s\n", m.host, line)
		l.output.Unlock()
	}
}
