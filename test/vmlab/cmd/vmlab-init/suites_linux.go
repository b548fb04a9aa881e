package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/test/vmlab"
)

// suites runs them one after the other, each at the same time in all machines.
func suites(ctx context.Context, host int, j *vmlab.Job) error {
	line, err := vmlab.Open(ctx, "init")
	if err != nil {
		return err
	}
	lab := vmlab.NewClient(line)
	defer func() { _ = lab.Close() }() // the machine is turned off
	output, err := vmlab.Open(ctx, "output")
	if err != nil {
		return err
	}
	defer output.Close()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	up, err := uptime()
	if err != nil {
		return err
	}
	if _, err := lab.Call(ctx, vmlab.Request{Op: vmlab.OpReady, Name: strings.TrimSpace(string(release)), Uptime: up}); err != nil {
		return err
	}
	for i := range j.Suites {
		s := &j.Suites[i]
		// The suite's own limits and the lab's hold from here on, not that of the boot.
		ctx := context.Background()
		if _, err := lab.Call(ctx, vmlab.Request{Op: vmlab.OpBegin, Suite: s.Name}); err != nil {
			return err
		}
		code := run(host, s, output)
		if err := send(ctx, lab, s); err != nil {
			return err
		}
		if up, err = uptime(); err != nil {
			return err
		}
		if _, err := lab.Call(ctx, vmlab.Request{Op: vmlab.OpEnd, Suite: s.Name, Code: code, Uptime: up}); err != nil {
			return err
		}
	}
	return nil
}

// uptime is the machine's clock in seconds since it was started.
func uptime() (float64, error) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(first, 64)
}

// run gives the exit code of a test program; 127 if it could not be started.
func run(host int, s *vmlab.BuiltSuite, output *os.File) int {
	cmd := exec.Command(filepath.Join(s.Dir(), vmlab.Test), s.Args...)
	cmd.Dir = s.Dir()
	cmd.Env = append(os.Environ(), vmlab.EnvHost+"="+strconv.Itoa(host), vmlab.EnvSuite+"="+s.Name, vmlab.EnvOut+"="+vmlab.Out)
	cmd.Stdout, cmd.Stderr = output, output
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	fmt.Fprintf(output, "vmlab: suite %s: %v\n", s.Name, err)
	return 127
}

// send hands over what the suite left, and removes it.
func send(ctx context.Context, lab *vmlab.Client, s *vmlab.BuiltSuite) error {
	root := os.DirFS(vmlab.Out)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		_, err = lab.Call(ctx, vmlab.Request{Op: vmlab.OpFile, Suite: s.Name, Name: name, Data: data})
		return err
	})
	if err != nil {
		return err
	}
	left, err := os.ReadDir(vmlab.Out)
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := os.RemoveAll(filepath.Join(vmlab.Out, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
