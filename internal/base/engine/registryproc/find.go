package registryproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ProgramPrefix is what names of registries' programs begin with; the scheme of the URL follows.
const ProgramPrefix = "topoctl-registry-"

// PluginsVariable names directories with such programs.
const PluginsVariable = "TOPOCTL_PLUGINS"

var schemeForm = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)

// Scheme is that of a registry's URL.
func Scheme(url string) (string, error) {
	scheme, _, ok := strings.Cut(url, "://")
	if !ok || !schemeForm.MatchString(scheme) {
		return "", fmt.Errorf("%.40q: want SCHEME://..., such as etcd://HOST", url)
	}
	return scheme, nil
}

// MissingError says that there is no program for a scheme, and where it was looked for.
type MissingError struct {
	Program string
	Dirs    []string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("no program %s in %s or the PATH", e.Program, strings.Join(e.Dirs, ", "))
}

// Find finds the program of a scheme: beside this program, in ../libexec/topoctl from there, in the
// directories of TOPOCTL_PLUGINS, then in the PATH.
func Find(scheme string, getenv func(string) string) (string, error) {
	program := ProgramPrefix + scheme
	var dirs []string
	if self, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(self); err == nil {
			self = real
		}
		beside := filepath.Dir(self)
		dirs = append(dirs, beside, filepath.Join(filepath.Dir(beside), "libexec", "topoctl"))
	}
	for _, dir := range filepath.SplitList(getenv(PluginsVariable)) {
		if filepath.IsAbs(dir) { // what a relative one is depends on where the user stands
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(program)
	if errors.Is(err, exec.ErrNotFound) {
		return "", &MissingError{program, dirs}
	}
	return path, err
}
