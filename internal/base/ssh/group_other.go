//go:build !unix

package ssh

import "os/exec"

func ownProcessGroup(*exec.Cmd) {}
