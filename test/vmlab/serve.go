package vmlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// clockSeconds is how long a clock is watched before it is judged: messages are late by
// tenths of a second where others use the processors.
const clockSeconds = 15

// meeting is machines that wait for each other at a name.
type meeting struct {
	values [3]*string
	over   chan struct{}
	err    error
}

// serve answers what the machine asks over one of its ports.
func (l *lab) serve(ctx context.Context, m *machine, c net.Conn) {
	_ = serveControl(c, func(r Request) Reply { // it ends with the machine
		value, result, err := l.handle(ctx, m, r)
		if err != nil {
			return Reply{Error: err.Error()}
		}
		return Reply{Value: value, Result: result}
	})
}

func (l *lab) handle(ctx context.Context, m *machine, r Request) (value string, result json.RawMessage, err error) {
	switch r.Op {
	case OpReady:
		l.mu.Lock()
		m.bootSeconds, m.bootTime = r.Uptime, time.Now()
		l.result.Kernel = r.Name
		l.mu.Unlock()
	case OpMeet:
		value, err = l.meet(ctx, m, r.Suite, r.Name, r.Value)
	case OpBegin:
		err = l.begin(ctx, m, r.Suite)
	case OpEnd:
		l.end(m, r.Suite, r.Code, r.Uptime)
	case OpFile:
		err = l.keep(m, r.Suite, r.Name, r.Data)
	case OpWire:
		cable := l.cables[r.Rail]
		if cable == nil || r.Rule == nil {
			return "", nil, fmt.Errorf("no cable for rail %d, or no rule", r.Rail)
		}
		cable.SetRule(*r.Rule)
	case OpCount:
		cable := l.cables[r.Rail]
		if cable == nil {
			return "", nil, fmt.Errorf("no cable for rail %d", r.Rail)
		}
		result, err = json.Marshal(cable.Count(m.host))
	case OpQMP:
		select {
		case mon := <-m.monitor:
			m.monitor <- mon
			result, err = mon.Run(r.Command, r.Arguments)
		case <-m.gone:
			err = errors.New("this machine is gone")
		}
	default:
		err = fmt.Errorf("unknown operation %q", r.Op)
	}
	return value, result, err
}

func (l *lab) peer(m *machine) *machine {
	for _, other := range l.machines {
		if other != m {
			return other
		}
	}
	return nil
}

// meet gives the value that the other machine brings to the name. Alone, a machine
// meets itself.
func (l *lab) meet(ctx context.Context, m *machine, suite, name, value string) (string, error) {
	peer := l.peer(m)
	if peer == nil {
		return value, nil
	}
	key := suite + "\x00" + name
	l.mu.Lock()
	if err := peer.left(suite); err != nil {
		l.mu.Unlock()
		return "", err
	}
	here := l.meetings[key]
	if here == nil {
		here = &meeting{over: make(chan struct{})}
		l.meetings[key] = here
	}
	if here.values[m.host] != nil {
		l.mu.Unlock()
		return "", errors.New("this machine waits there already")
	}
	here.values[m.host] = &value
	if here.values[peer.host] != nil {
		delete(l.meetings, key)
		close(here.over)
	}
	l.mu.Unlock()
	select {
	case <-here.over:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case <-m.gone:
		return "", errors.New("this machine is gone")
	}
	if here.err != nil {
		return "", here.err
	}
	return *here.values[peer.host], nil
}

// left says why a machine will not come to a meeting of a suite any more.
func (m *machine) left(suite string) error {
	if m.dead {
		return fmt.Errorf("machine %d is gone", m.host)
	}
	if code, ok := m.ended[suite]; ok {
		return fmt.Errorf("machine %d has left the suite with exit code %d", m.host, code)
	}
	return nil
}

// dissolve ends the meetings that a machine will not come to. The mutex is held.
func (l *lab) dissolve(m *machine, suite string) {
	for key, here := range l.meetings {
		if suite != "" && key[:min(len(key), len(suite)+1)] != suite+"\x00" {
			continue
		}
		here.err = m.left(suite)
		delete(l.meetings, key)
		close(here.over)
	}
}

func (l *lab) died(m *machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.dead = true
	l.dissolve(m, "")
}

// begin starts a suite when all machines are there.
func (l *lab) begin(ctx context.Context, m *machine, suite string) error {
	if _, err := l.meet(ctx, m, "", suite, ""); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-m.ready:
	default:
		close(m.ready)
	}
	m.suite, m.began = suite, time.Now()
	return nil
}

// end writes down how a suite ended, and how the machine's clock ran until then: a short
// while tells nothing.
func (l *lab) end(m *machine, suite string, code int, uptime float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := time.Since(m.bootTime).Seconds(); since > clockSeconds {
		m.clock = (uptime - m.bootSeconds) / since
	}
	m.suite, m.ended[suite] = "", code
	l.result.Suites = append(l.result.Suites, SuiteResult{Suite: suite, Host: m.host, Code: code, Seconds: time.Since(m.began).Seconds()})
	l.dissolve(m, suite)
}

// keep writes a file that a suite left.
func (l *lab) keep(m *machine, suite, name string, data []byte) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q is no name below a folder", name)
	}
	return l.write(filepath.Join(suite, strconv.Itoa(m.host), name), data)
}

// write writes a file for the user, if there is a folder for it.
func (l *lab) write(name string, data []byte) error {
	if l.o.Out == "" {
		return nil
	}
	at := filepath.Join(l.o.Out, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fmt.Errorf("vmlab: %w", err)
	}
	return os.WriteFile(at, data, 0o644)
}
