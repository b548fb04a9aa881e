//go:build !unix

package ssh

import "os/exec"

func ownProcessGroup(*exec.Cmd) {}

// Kill ends ssh.
func Kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
