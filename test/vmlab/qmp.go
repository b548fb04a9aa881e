package vmlab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
)

// qmpMonitor speaks QMP with one machine's emulator.
type qmpMonitor struct {
	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
	next int
}

// newMonitor does the greeting.
func newMonitor(conn net.Conn) (*qmpMonitor, error) {
	m := &qmpMonitor{conn: conn, in: bufio.NewReader(conn)}
	var greeting struct {
		QMP json.RawMessage `json:"QMP"`
	}
	line, err := m.in.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("qmp: %w", err)
	}
	if err := json.Unmarshal(line, &greeting); err != nil || greeting.QMP == nil {
		return nil, fmt.Errorf("qmp: no greeting but %q", line)
	}
	if _, err := m.Run("qmp_capabilities", nil); err != nil {
		return nil, err
	}
	return m, nil
}

// Close ends the conversation; a Run that waits gives an error.
func (m *qmpMonitor) Close() error { return m.conn.Close() }

// Run gives what a command returns. Events that come in between are dropped.
func (m *qmpMonitor) Run(command string, arguments json.RawMessage) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	out, err := json.Marshal(struct {
		Execute   string          `json:"execute"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
		ID        int             `json:"id"`
	}{command, arguments, m.next})
	if err != nil {
		return nil, err
	}
	if _, err := m.conn.Write(append(out, '\n')); err != nil {
		return nil, fmt.Errorf("qmp: %s: %w", command, err)
	}
	for {
		line, err := m.in.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("qmp: %s: %w", command, err)
		}
		var reply struct {
			ID     *int            `json:"id"`
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Class string `json:"class"`
				Desc  string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal(line, &reply); err != nil {
			return nil, fmt.Errorf("qmp: %s: %w", command, err)
		}
		if reply.ID == nil || *reply.ID != m.next {
			continue
		}
		if reply.Error != nil {
			return nil, errors.New("qmp: " + command + ": " + reply.Error.Desc)
		}
		return reply.Return, nil
	}
}
