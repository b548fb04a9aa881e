//go:build unix

package fabric

import (
	"os/exec"
	"syscall"
)

// ownProcessGroup keeps the terminal's interrupt from ssh: it is for the controller, which ends
// the agents when it has heard what they measured.
func ownProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
