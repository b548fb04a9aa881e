package vmlab

// The wire is the cabling between lab machines. Each end of a cable is a
// QEMU "stream" netdev: frames with their length in front, over a unix socket. Like a
// real cable, and unlike two QEMUs joined directly, it never pushes back: a NIC that
// takes nothing in would stop the far machine, so what is not taken in time is dropped.

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
)

// queueBytes is what waits for one end of a cable, as in a switch's port.
const queueBytes = 4 << 20

// maxFrame bounds what a length in front of a frame may say.
const maxFrame = 1 << 18

// Rule is what a cable does to frames, by the machine (1 or 2) that sent them.
type Rule struct {
	// Cut drops all frames of the machine with that number (index 0 is unused).
	Cut [3]bool `json:"cut"`
	// Hold keeps the frames of the machine with that number, as many as a queue holds:
	// they are delivered once a rule does not hold them.
	Hold [3]bool `json:"hold"`
	// LossPercent of the frames of either machine are dropped.
	LossPercent float64 `json:"loss_percent"`
}

func (r *Rule) drops(from int, dice func() float64) bool {
	return r.Cut[from] || r.LossPercent > 0 && dice()*100 < r.LossPercent
}

// Count is what arrived at one end, or did not.
type Count struct {
	Frames, Bytes   int64 // handed to the machine
	Cut, Overflowed int64 // frames dropped by the rule, or because the machine took none
}

// Cable joins the NICs that two machines have on one rail. An end that nobody has
// plugged in takes frames and drops them.
type Cable struct {
	rule   atomic.Pointer[Rule]
	ends   [3]*end
	dice   func() float64
	mu     sync.Mutex
	kept   [3][][]byte // frames that are held, by the machine that sent them
	bytes  [3]int      // of them
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

type end struct {
	queue    chan []byte
	held     atomic.Int64
	plugged  atomic.Pointer[net.Conn]
	counters [4]atomic.Int64
}

// newCable makes a cable with nothing plugged in.
func newCable() *Cable {
	c := &Cable{dice: rand.Float64, closed: make(chan struct{})}
	c.rule.Store(&Rule{})
	for host := 1; host <= 2; host++ {
		c.ends[host] = &end{queue: make(chan []byte, 8192)}
	}
	return c
}

// SetRule is in force for every frame that arrives from now on, and for those that are
// held.
func (c *Cable) SetRule(r Rule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rule.Store(&r)
	for from := 1; from <= 2; from++ {
		if r.Hold[from] {
			continue
		}
		for _, frame := range c.kept[from] {
			c.carry(from, frame)
		}
		c.kept[from], c.bytes[from] = nil, 0
	}
}

// hold keeps a frame if the rule still says so.
func (c *Cable) hold(from int, frame []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.rule.Load().Hold[from] {
		return false
	}
	if c.bytes[from]+len(frame) > queueBytes {
		c.ends[3-from].counters[3].Add(1)
		return true
	}
	c.kept[from], c.bytes[from] = append(c.kept[from], frame), c.bytes[from]+len(frame)
	return true
}

// Count tells what machine host was given.
func (c *Cable) Count(host int) Count {
	n := &c.ends[host].counters
	return Count{Frames: n[0].Load(), Bytes: n[1].Load(), Cut: n[2].Load(), Overflowed: n[3].Load()}
}

// Plug connects machine host. The cable owns the connection from here on.
func (c *Cable) Plug(host int, conn net.Conn) error {
	if !c.ends[host].plugged.CompareAndSwap(nil, &conn) {
		_ = conn.Close() // it is refused
		return fmt.Errorf("wire: machine %d is plugged in already", host)
	}
	c.wg.Add(2)
	go func() {
		defer c.wg.Done()
		c.receive(host, conn)
	}()
	go func() {
		defer c.wg.Done()
		c.deliver(host, conn)
	}()
	return nil
}

// Close unplugs both ends and waits until nothing runs.
func (c *Cable) Close() {
	c.once.Do(func() { close(c.closed) })
	for host := 1; host <= 2; host++ {
		if conn := c.ends[host].plugged.Load(); conn != nil {
			_ = (*conn).Close() // it may be closed
		}
	}
	c.wg.Wait()
}

// receive carries frames of one machine to the other's queue.
func (c *Cable) receive(from int, conn net.Conn) {
	r := bufio.NewReaderSize(conn, 1<<18)
	var length [4]byte
	for {
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(length[:])
		if n > maxFrame {
			_ = conn.Close() // what comes is no stream of frames
			return
		}
		frame := make([]byte, 4+n)
		copy(frame, length[:])
		if _, err := io.ReadFull(r, frame[4:]); err != nil {
			return
		}
		if c.rule.Load().Hold[from] && c.hold(from, frame) {
			continue
		}
		c.carry(from, frame)
	}
}

func (c *Cable) carry(from int, frame []byte) {
	far := c.ends[3-from]
	if c.rule.Load().drops(from, c.dice) {
		far.counters[2].Add(1)
		return
	}
	if far.plugged.Load() == nil || far.held.Load() >= queueBytes {
		far.counters[3].Add(1)
		return
	}
	far.held.Add(int64(len(frame)))
	select {
	case far.queue <- frame:
	default:
		far.held.Add(-int64(len(frame)))
		far.counters[3].Add(1)
	}
}

func (c *Cable) deliver(to int, conn net.Conn) {
	e := c.ends[to]
	for {
		select {
		case <-c.closed:
			return
		case frame := <-e.queue:
			e.held.Add(-int64(len(frame)))
			if _, err := conn.Write(frame); err != nil {
				return
			}
			e.counters[0].Add(1)
			e.counters[1].Add(int64(len(frame) - 4))
		}
	}
}
