package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/internal/text"
)

// servingEngine is a program that imports the Python packages of another engine.
type servingEngine struct {
	name, title string
	imports     []string // the packages
	changes     string   // what becomes ours
}

var servingEngines = []servingEngine{
	{"vllm", "vLLM", []string{"mooncake", "nixl"}, "MooncakeConnector and NixlConnector move KV cache by topoctl"},
	{"sglang", "SGLang", []string{"mooncake", "nixl"}, "--disaggregation-transfer-backend mooncake and nixl move KV cache by topoctl"},
	{"lmcache", "LMCache", []string{"mooncake", "nixl"}, "its Mooncake and NIXL channels move KV cache by topoctl"},
	{"dynamo", "Dynamo", []string{"nixl"}, "nixl_connect, and the NIXL connectors of its workers, move memory by topoctl"},
}

func servingNames() []string {
	var names []string
	for _, e := range servingEngines {
		names = append(names, e.name)
	}
	return names
}

// findServing is the program of a name.
func findServing(name string) (*servingEngine, error) {
	if err := known(name, servingNames()); err != nil {
		return nil, err
	}
	return &servingEngines[slices.Index(servingNames(), name)], nil
}

type pythonEnvOptions struct {
	*Host
	engine   *servingEngine
	packages string // the directory of the Python package topoctl, "" for the one beside this program
}

func newPythonEnvCmd(f *Env) *cobra.Command {
	opts := &pythonEnvOptions{Host: f.Host()}
	cmd := newCommand(opts, "env", "Print the environment in which a program imports topoctl's mooncake and nixl")
	Var(cmd, &opts.engine, "for", "", "the program, `ENGINE`: "+either(servingNames()), findServing)
	cmd.Flags().StringVar(&opts.packages, "package", "", "`DIR` of the Python package topoctl (default: where its wheel put it and this program)")
	var engines []string
	for _, e := range servingEngines {
		engines = append(engines, cobra.CompletionWithDesc(e.name, e.title+": "+e.changes))
	}
	Offer(cmd, map[string]completer{"for": Words(engines...)})
	if err := cmd.MarkFlagDirname("package"); err != nil {
		panic(err)
	}
	Prints(cmd, "a script for a POSIX shell")
	return cmd
}

func (o *pythonEnvOptions) parse(*cobra.Command, []string) error {
	if o.engine == nil {
		return withHint(errors.New("--for is required"), "--for ENGINE: %s", either(servingNames()))
	}
	return nil
}

func (o *pythonEnvOptions) run(_ context.Context) error {
	dir, err := o.compat()
	if err != nil {
		return err
	}
	ours := []string{dir}
	if o.packages != "" { // which need not be where Python looks for packages
		ours = append(ours, filepath.Dir(filepath.Dir(dir)))
	}
	return Write(o.Streams.Out, []byte(envScript(o.engine, ours, filepath.SplitList(o.Streams.Getenv("PYTHONPATH")))))
}

// compat is the directory in which the modules for the program lie.
func (o *pythonEnvOptions) compat() (string, error) {
	const hint = "install topoctl's wheel, whose program finds it, or use --package DIR: the directory of the package, with __init__.py in it"
	dir := o.packages
	if dir == "" {
		var err error
		if dir, err = installedPackage(); err != nil {
			return "", withHint(err, hint)
		}
	}
	dir, err := filepath.Abs(filepath.Join(dir, "compat"))
	if err != nil {
		return "", err
	}
	for _, name := range o.engine.imports {
		if _, err := os.Stat(filepath.Join(dir, name, "__init__.py")); err != nil {
			return "", withHint(fmt.Errorf("no Python module %s: %w", name, err), hint)
		}
	}
	if strings.Contains(dir, string(filepath.ListSeparator)) {
		return "", withHint(fmt.Errorf("%s cannot be in PYTHONPATH, which separates directories by %q", dir, filepath.ListSeparator), "move the package")
	}
	return dir, nil
}

// installedPackage is the Python package that pip installed with this program, which is a script of
// the same wheel: PREFIX/bin/topoctl and PREFIX/lib/python3.N/site-packages/topoctl.
func installedPackage() (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return "", err
	}
	prefix := filepath.Dir(filepath.Dir(program))
	found, err := filepath.Glob(filepath.Join(prefix, "lib*", "python3*", "*-packages", "topoctl", "__init__.py"))
	if err != nil {
		return "", err
	}
	// lib64 is a link to lib in some environments.
	for i, f := range found {
		if found[i], err = filepath.EvalSymlinks(f); err != nil {
			return "", err
		}
	}
	slices.Sort(found)
	switch found = slices.Compact(found); len(found) {
	case 1:
		return filepath.Dir(found[0]), nil
	case 0:
		return "", fmt.Errorf("no Python package topoctl below %s", prefix)
	}
	return "", fmt.Errorf("there are %d Python packages topoctl below %s", len(found), prefix)
}

// envScript is what the command prints: ours go before what is in PYTHONPATH.
func envScript(e *servingEngine, ours, before []string) string {
	before = slices.DeleteFunc(before, func(dir string) bool { return slices.Contains(ours, dir) })
	set := func(dirs []string) string {
		return "export PYTHONPATH=" + text.ShellQuote(strings.Join(dirs, string(filepath.ListSeparator)))
	}
	back := "unset PYTHONPATH"
	if len(before) > 0 {
		back = set(before)
	}
	var b strings.Builder
	for _, line := range []string{
		"In this environment, " + e.title + " imports " + strings.Join(e.imports, " and ") + " from topoctl:",
		e.changes + ".",
		"Installed packages stay as they are; modules that topoctl lacks (mooncake.store) are still theirs.",
		"To reach other hosts, also set TOPOCTL_TOKEN_FILE to a file with a shared secret of 16 bytes or",
		"more, or TOPOCTL_INSECURE=1 in a network that you trust.",
		"To go back: " + back,
	} {
		b.WriteString("# " + text.Printable(line) + "\n")
	}
	b.WriteString(set(slices.Concat(ours, before)) + "\n")
	return b.String()
}
