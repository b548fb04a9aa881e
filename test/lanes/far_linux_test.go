package lanes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// ask is a line to the far process, answer a line from it.
type ask struct {
	Do     string `json:"do"` // sink, engine, verify, watch
	Seed   uint64 `json:"seed,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	Lanes  int    `json:"lanes,omitempty"`
}

type answer struct {
	Error   string `json:"error,omitempty"`
	Address string `json:"address,omitempty"`
	Wrong   int64  `json:"wrong,omitempty"` // bytes that are not what they should be
	Stops   stops  `json:"stops,omitempty"`
}

// farProcess is this program in the far namespace.
type farProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	to   io.WriteCloser
	from *bufio.Reader
}

func startFar(t *testing.T) *farProcess {
	t.Helper()
	f := &farProcess{t: t, cmd: command(roleFar, false)}
	f.cmd.Stderr = os.Stderr
	var err error
	if f.to, err = f.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f.from = bufio.NewReader(out)
	if err := f.cmd.Start(); err != nil {
		t.Skipf("no second network namespace can be made here: %v", err)
	}
	t.Cleanup(func() {
		f.to.Close() // that ends it
		ended := time.AfterFunc(time.Minute, func() { _ = f.cmd.Process.Kill() })
		defer ended.Stop()
		if err := f.cmd.Wait(); err != nil {
			t.Errorf("the far process: %v", err)
		}
	})
	f.ask(ask{Do: "hello"})
	return f
}

func (f *farProcess) pid() int { return f.cmd.Process.Pid }

// ask sends a line and waits for the answer.
func (f *farProcess) ask(a ask) answer {
	f.t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.to.Write(append(b, '\n')); err != nil {
		f.t.Fatalf("far process: %s: %v", a.Do, err)
	}
	line, err := f.from.ReadBytes('\n')
	if err != nil {
		f.t.Fatalf("far process: %s: %v", a.Do, err)
	}
	var got answer
	if err := json.Unmarshal(line, &got); err != nil {
		f.t.Fatalf("far process: %s: %v", a.Do, err)
	}
	if got.Error != "" {
		f.t.Fatalf("far process: %s: %s", a.Do, got.Error)
	}
	return got
}

// far is the far process: it does what it is asked until its input ends.
func far() int {
	f := &farSide{}
	defer f.close()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var a ask
		err := json.Unmarshal(in.Bytes(), &a)
		var got answer
		if err == nil {
			got, err = f.do(a)
		}
		if err != nil {
			got.Error = err.Error()
		}
		b, err := json.Marshal(got)
		if err != nil {
			return 1
		}
		fmt.Printf("%s\n", b)
	}
	return 0
}

type farSide struct {
	listener net.Listener
	engine   *farEngine
	watch    *watch
}

func (f *farSide) do(a ask) (answer, error) {
	switch a.Do {
	case "hello":
		return answer{}, nil
	case "sink":
		return f.sink()
	case "engine":
		return f.startEngine(a)
	case "located":
		return f.startLocated()
	case "watch":
		f.watch = watchStops()
		return answer{}, nil
	case "stops":
		return answer{Stops: f.watch.end()}, nil
	case "fill", "verify":
		if f.engine == nil {
			return answer{}, errors.New("there is no engine")
		}
		return f.engine.content(a)
	}
	return answer{}, fmt.Errorf("unknown ask %q", a.Do)
}

func (f *farSide) close() {
	if f.listener != nil {
		f.listener.Close()
	}
	if f.engine != nil {
		f.engine.e.Close()
	}
}

// sink takes what comes on any address and tells each connection, at its end, how
// many bytes came.
func (f *farSide) sink() (answer, error) {
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		return answer{}, err
	}
	f.listener = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				n, _ := io.Copy(io.Discard, c)
				fmt.Fprintln(c, n)
			}()
		}
	}()
	return answer{Address: l.Addr().String()}, nil
}
