package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pty is a terminal of the kernel's with the dashboard in it.
type pty struct {
	t        *testing.T
	master   *os.File
	terminal *os.File // the other end, which tells the modes
	cmd      *exec.Cmd
	ended    chan error
	mu       sync.Mutex
	out      bytes.Buffer
}

// openPTY gives both ends of a new terminal.
func openPTY(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return master, terminal
}

func startPTY(t *testing.T, args ...string) *pty {
	t.Helper()
	return startPTYWith(t, append([]string{"topoctl", "tui"}, args...)...)
}

// startPTYWith runs a command in a new terminal, which is its controlling one.
func startPTYWith(t *testing.T, command ...string) *pty {
	t.Helper()
	x := &pty{t: t, ended: make(chan error, 1)}
	x.master, x.terminal = openPTY(t)
	if err := unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 120, Row: 30}); err != nil {
		t.Fatal(err)
	}
	x.cmd = exec.Command(command[0], command[1:]...)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = x.terminal, x.terminal, x.terminal
	x.cmd.Env = append(os.Environ(), "TERM=xterm-256color", "NO_COLOR=")
	x.cmd.Dir = t.TempDir()
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { x.ended <- x.cmd.Wait() }()
	go func() { // ends with the terminal
		buf := make([]byte, 1<<16)
		for {
			n, err := x.master.Read(buf)
			x.mu.Lock()
			x.out.Write(buf[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { x.cmd.Process.Kill() })
	return x
}

func (x *pty) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.String()
}

func (x *pty) see(want string) {
	x.t.Helper()
	for range 6000 {
		if strings.Contains(x.text(), want) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	x.t.Fatalf("the terminal never had %q: %q", want, x.text())
}

func (x *pty) write(keys string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

func (x *pty) modes() unix.Termios {
	x.t.Helper()
	m, err := unix.IoctlGetTermios(int(x.terminal.Fd()), unix.TCGETS)
	if err != nil {
		x.t.Fatal(err)
	}
	return *m
}

// code waits for the end and gives the exit code.
func (x *pty) code() int {
	x.t.Helper()
	select {
	case err := <-x.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			x.t.Fatal(err)
		}
	case <-time.After(time.Minute):
		x.t.Fatal("the dashboard does not end")
	}
	return x.cmd.ProcessState.ExitCode()
}

const leaveScreen, showCursor = "\x1b[?1049l", "\x1b[?25h"

// However it ends, the dashboard leaves the terminal as it was.
func TestTUITerminal(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(x *pty)
		code int
	}{
		{"q", func(x *pty) { x.write("q") }, 0},
		{"ctrl+c", func(x *pty) { x.write("\x03") }, 0},
		{"SIGTERM", func(x *pty) { x.cmd.Process.Signal(syscall.SIGTERM) }, 130},
		{"SIGINT", func(x *pty) { x.cmd.Process.Signal(syscall.SIGINT) }, 130},
		{"SIGHUP", func(x *pty) { x.cmd.Process.Signal(syscall.SIGHUP) }, 130},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := startPTY(t, "--fixture", "cpu-2eth")
			x.see("1 tree")
			x.see("cpu-2eth")
			raw := x.modes()
			if raw.Lflag&unix.ICANON != 0 {
				t.Fatal("the terminal is not in raw mode: the test sees nothing")
			}
			tt.end(x)
			if code := x.code(); code != tt.code {
				t.Errorf("exit code %d, want %d: %q", code, tt.code, x.text())
			}
			if m := x.modes(); m.Lflag&unix.ICANON == 0 || m.Lflag&unix.ECHO == 0 {
				t.Error("the terminal stays in raw mode")
			}
			x.see(leaveScreen)
			x.see(showCursor)
		})
	}
}

// ctrl+z gives the terminal to the shell, and fg brings the dashboard back.
func TestTUISuspend(t *testing.T) {
	x := startPTYWith(t, "sh", "-c", "set -m; topoctl tui --fixture cpu-2eth; stty -a; echo in the shell; fg; echo at the end")
	x.see("1 tree")
	x.write("\x1a")
	x.see("in the shell")
	if text := x.text(); !strings.Contains(text, leaveScreen) || !strings.Contains(text, " icanon") {
		t.Errorf("the shell got the terminal in raw mode, or on the other screen: %q", text)
	}
	_, after, _ := strings.Cut(x.text(), "in the shell")
	waitFor(t, "the screen to come back", func() bool {
		_, after, _ = strings.Cut(x.text(), "in the shell")
		return strings.Contains(after, "1 tree")
	})
	x.write("q")
	x.see("at the end")
	if code := x.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Where no shell would bring it back, ctrl+z does nothing.
func TestTUINoShell(t *testing.T) {
	x := startPTY(t, "--fixture", "cpu-2eth")
	x.see("1 tree")
	x.write("\x1a")
	x.see("no shell to go back to")
	x.write("q")
	if code := x.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A terminal that goes away takes the dashboard with it.
func TestTUITerminalGone(t *testing.T) {
	x := startPTY(t, "--fixture", "cpu-2eth")
	x.see("1 tree")
	x.terminal.Close()
	x.master.Close()
	x.code()
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 6000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}

// What is recorded is what is played, and a disk that is full ends the recording only.
func TestTUIRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.jsonl")
	x := startPTY(t, "--fixture", "dgx-h100", "--synthetic-load", "--interval", "100ms", "--record", file)
	x.see("REC")
	waitFor(t, "records", func() bool {
		data, err := os.ReadFile(file)
		return err == nil && bytes.Count(data, []byte("\n")) > 8
	})
	x.write("q")
	if code := x.code(); code != 0 {
		t.Fatalf("exit code %d: %q", code, x.text())
	}
	out, err := exec.Command("topoctl", "tui", "--once", "--replay", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"REPLAY ended", "fixture:dgx-h100", "SYNTHETIC", "mlx5_0", "b/s"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the replay lacks %q:\n%s", want, out)
		}
	}

	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("/dev/full is not there: no file that is always full")
	}
	x = startPTY(t, "--fixture", "cpu-2eth", "--record", "/dev/full")
	x.see("no space left on device") // the rest may be on the screen already
	x.write("2")
	x.see("2 matrix")
	x.write("q")
	if code := x.code(); code != 2 {
		t.Errorf("exit code %d, want 2: what was asked for is not there", code)
	}
	x.see("recording /dev/full: no space left on device")
}
