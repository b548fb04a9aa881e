package probelab

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"golang.org/x/sys/unix"
)

// screen is a terminal with topoctl on it: a pseudo-terminal, and an emulator that shows what
// comes out and answers what it is asked.
type screen struct {
	t    *testing.T
	keys *os.File
	cmd  *exec.Cmd
	ends sync.WaitGroup

	mu sync.Mutex
	em *vt.Emulator
}

// openScreen starts topoctl on a terminal of so many columns and lines.
func openScreen(t *testing.T, w, h int, args ...string) *screen {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	fd := int(keys.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(h), Col: uint16(w)})
	}
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	defer tty.Close()
	s := &screen{t: t, keys: keys, em: vt.NewEmulator(w, h), cmd: command(roleTool, 0, args...)}
	s.cmd.Env = append(s.cmd.Env, "TERM=xterm-256color", "NO_COLOR=1")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.SysProcAttr.Setsid, s.cmd.SysProcAttr.Setctty = true, true
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.ends.Go(func() { _, _ = io.Copy(s, keys) })    // until the program has ended
	s.ends.Go(func() { _, _ = io.Copy(keys, s.em) }) // what the terminal answers
	t.Cleanup(s.close)
	return s
}

// Write takes what the program prints.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.em.Write(p)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.em.String()
}

func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for all of some texts to be on the screen at once, and gives it then.
func (s *screen) until(wants ...string) string {
	s.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		text, missing := s.text(), ""
		for _, want := range wants {
			if !strings.Contains(text, want) {
				missing = want
			}
		}
		if missing == "" {
			return text
		}
		if time.Now().After(end) {
			s.t.Fatalf("not within %v: %q; there is\n%s", within, missing, text)
		}
	}
}

// wait waits for the program to end.
func (s *screen) wait() {
	s.t.Helper()
	limit := time.AfterFunc(within, func() { _ = s.cmd.Process.Kill() })
	defer limit.Stop()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the dashboard: %v\n%s", err, s.text())
	}
}

func (s *screen) close() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	s.keys.Close()
	if pipe, ok := s.em.InputPipe().(io.Closer); ok { // Emulator.Close races with its Read
		_ = pipe.Close()
	}
	s.ends.Wait()
}
