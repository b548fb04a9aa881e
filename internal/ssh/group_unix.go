//go:build unix

package ssh

import (
	"os/exec"
	"syscall"
)

// ownProcessGroup keeps the terminal's interrupt from ssh: it is for the controller, which ends what
// it started.
func ownProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Kill ends ssh and what it has started here, such as a ProxyCommand.
func Kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
