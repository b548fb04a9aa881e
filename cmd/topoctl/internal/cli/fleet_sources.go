package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/topoctl/topoctl/fixtures"
	"github.com/topoctl/topoctl/internal/build"
	model "github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/collect"
	"github.com/topoctl/topoctl/internal/hostlist"
	"github.com/topoctl/topoctl/internal/observe"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// fleetArgs are the arguments that name a fleet, with the one of --from.
func fleetArgs(in *Host, args []string) ([]string, error) {
	args = withFrom(in, args)
	if len(args) == 0 {
		return nil, withHint(errors.New("no fleet"), "name the topologies of hosts, or what \"topoctl fleet collect --out-dir DIR\" has written")
	}
	return args, nil
}

func withFrom(in *Host, args []string) []string {
	if in.Globals.From == "" {
		return args
	}
	return append(slices.Clone(args), in.Globals.From)
}

// describedFile gives the sources that arguments name: files, folders, archives, fixtures.
func describedFile(in *Host, args []string) (iter.Seq2[collect.Source, error], error) {
	piped := 0
	for _, arg := range args { // what is not there is a slip of the user and no host that does not answer
		if err := isThere(arg); err != nil {
			return nil, err
		}
		if _, source := namedSource(arg); source == "-" {
			piped++
		}
	}
	switch {
	case piped > 1:
		return nil, errors.New("only one source can be standard input")
	case piped == 1 && in.Streams.InTTY:
		return nil, withHint(errors.New("- reads standard input, which is a terminal"), "pipe a topology into it, or a tar archive of topologies")
	}
	return func(yield func(collect.Source, error) bool) {
		for _, arg := range args {
			for s, err := range sourcesOf(in, arg) {
				if !yield(s, err) {
					return
				}
			}
		}
	}, nil
}

// isThere is the error of an argument that names nothing.
func isThere(arg string) error {
	_, source := namedSource(arg)
	if source == "-" {
		return nil
	}
	name, isFixture := strings.CutPrefix(source, fixturePrefix)
	if isFixture {
		source = name // a machine described in a file
	}
	_, err := os.Stat(source)
	switch {
	case isFixture && err != nil:
		known := slices.Concat(fixtures.Names(), fixtures.Captures())
		if !slices.Contains(known, name) {
			return suggest(fmt.Errorf("%w %q", fixtures.ErrUnknown, name), name, known, "\"topoctl fixtures\" lists all")
		}
	case err != nil:
		return withHint(openError(source, err), "want files, folders, archives or %sNAME", fixturePrefix)
	}
	return nil
}

// namedSource splits NAME=SOURCE; an argument that is a file is one, whatever it is called.
func namedSource(arg string) (name, source string) {
	name, source, ok := strings.Cut(arg, "=")
	if _, err := os.Stat(arg); !ok || err == nil || name == "" || strings.ContainsAny(name, "/\\") {
		return "", arg
	}
	return name, source
}

// sourcesOf are the sources of one argument.
func sourcesOf(in *Host, arg string) iter.Seq2[collect.Source, error] {
	name, path := namedSource(arg)
	var one collect.Source
	var several iter.Seq2[collect.Source, error]
	info, err := os.Stat(path)
	switch folder := err == nil && info.IsDir(); {
	case strings.HasPrefix(path, fixturePrefix):
		one = collect.Source{Name: strings.TrimPrefix(path, fixturePrefix), From: path, Read: encoded(in, path)}
	case path == "-" && isPipedArchive(in):
		several = collect.ArchiveOf(in.Streams.In, stdinName)
	case path == "-":
		one = collect.Source{Name: "-", From: stdinName, Read: fileReader(in, path)}
	case folder && isRoot(path):
		one = collect.Source{Name: collect.HostName(filepath.Clean(path)), From: "folder " + path, Read: encoded(in, path)}
	case folder:
		several = documentsBelow(in, path)
	case collect.IsArchive(path):
		several = collect.Archive(path)
	default:
		one = collect.Source{Name: collect.HostName(path), From: "file " + path, Read: fileReader(in, path)}
	}
	return func(yield func(collect.Source, error) bool) {
		switch {
		case several == nil:
			one.Name = cmp.Or(name, one.Name)
			yield(one, nil)
		case name != "":
			yield(one, fmt.Errorf("%s: a name is for one host, not for a folder or an archive", arg))
		default:
			several(yield)
		}
	}
}

// pipe is standard input that can be looked at before it is read. What reads from it ends when ctx ends, or when
// nothing comes in the time of --timeout.
type pipe struct {
	ctx  context.Context //nolint:containedctx // Read has none
	host *Host
	in   io.Reader
}

func (p pipe) Read(b []byte) (int, error) {
	data, err := Within(p.ctx, p.host, stdinName, func() ([]byte, error) {
		own := make([]byte, len(b)) // the read may outlive b's use
		n, err := p.in.Read(own)
		return own[:n], err
	})
	return copy(b, data), err
}

// withPipe is in with standard input that pipedHead can look at.
func withPipe(ctx context.Context, in *Host) *Host {
	if _, done := in.Streams.In.(*bufio.Reader); done {
		return in
	}
	own := *in
	own.Streams.In = bufio.NewReaderSize(pipe{ctx, in, in.Streams.In}, pipedBytes)
	return &own
}

const pipedBytes = 64 << 10

// pipedHead is the beginning of standard input, nil where that is a terminal.
func pipedHead(in *Host) []byte {
	r, ok := in.Streams.In.(*bufio.Reader)
	if !ok || in.Streams.InTTY {
		return nil
	}
	const enough = 4 << 10
	head, _ := r.Peek(enough) // whatever is there; the reader of the rest gets the error
	return head
}

func isPipedArchive(in *Host) bool { return collect.DetectArchive(pipedHead(in)) }

// isRoot says whether a folder is the captured file tree of one host.
func isRoot(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "sys"))
	return err == nil && info.IsDir()
}

func fileReader(in *Host, path string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return in.ReadFile(ctx, path) }
}

// encoded discovers what an argument names, and gives its document.
func encoded(in *Host, arg string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		t, err := in.Named(ctx, arg)
		if err != nil {
			return nil, err
		}
		return t.Encode()
	}
}

// documentsBelow are the documents of hosts in a folder and the folders in it.
func documentsBelow(in *Host, dir string) iter.Seq2[collect.Source, error] {
	return func(yield func(collect.Source, error) bool) {
		files, err := collect.Folder(dir)
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("%s: no documents of hosts: want files called *.json, *.tree, or *.json.gz, *.tree.gz", dir)
		}
		if err != nil {
			yield(collect.Source{}, err)
			return
		}
		for i, name := range collect.Names(dir, files) {
			if !yield(collect.Source{Name: name, From: "file " + files[i], Read: fileReader(in, files[i])}, nil) {
				return
			}
		}
	}
}

// httpPort is where agents serve HTTP in our manifests and units.
const httpPort = "9411"

// agentTargets reads the value of --agents: a file with a line for each, or a list with commas.
func agentTargets(ctx context.Context, in *Host, value string) ([]collect.Target, error) {
	data := []byte(strings.ReplaceAll(strings.ReplaceAll(value, ",", "\n"), "=", " "))
	what := "--agents"
	if _, err := os.Stat(value); err == nil || value == "-" {
		if data, err = in.ReadFile(ctx, value); err != nil {
			return nil, fmt.Errorf("--agents: %w", err)
		}
		what = "--agents " + value
	}
	var out []collect.Target
	var plain strings.Builder
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(strings.SplitN(line, "#", 2)[0])
		if len(fields) == 0 || !strings.Contains(fields[len(fields)-1], "://") {
			plain.WriteString(line)
			continue
		}
		url, err := observe.AgentURL(fields[len(fields)-1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		out = append(out, collect.Target{Name: strings.TrimPrefix(strings.TrimPrefix(fields[0], "http://"), "https://"), Address: url})
	}
	if strings.TrimSpace(plain.String()) == "" && len(out) > 0 {
		return out, nil
	}
	hosts, err := hostlist.Parse([]byte(plain.String()), model.MaxHosts, httpPort)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, listError(err))
	}
	for _, h := range hosts {
		out = append(out, collect.Target{Name: h.Name, Address: "http://" + h.Address})
	}
	return out, nil
}

// sshTargets reads --hosts and --host: names, and the hosts that ssh connects to.
func sshTargets(ctx context.Context, in *Host, file string, names []string) ([]collect.Target, error) {
	var data []byte
	flag := "--host"
	if file != "" {
		var err error
		if data, err = in.ReadFile(ctx, file); err != nil {
			return nil, fmt.Errorf("--hosts: %w", err)
		}
		flag, data = "--hosts", append(data, '\n')
	}
	for _, n := range names {
		data = append(data, strings.Replace(n, "=", " ", 1)+"\n"...)
	}
	hosts, err := hostlist.Parse(data, model.MaxHosts, sshPort)
	if err != nil {
		err = fmt.Errorf("%s: %w", flag, listError(err))
		if bytes.Contains(data, []byte("@")) {
			err = withHint(err, sshConfigHint)
		}
		return nil, err
	}
	out := make([]collect.Target, len(hosts))
	for i, h := range hosts {
		host, ok := strings.CutSuffix(h.Address, ":"+sshPort)
		if !ok {
			return nil, withHint(fmt.Errorf("%s: %s: has a port", flag, h.Address), sshConfigHint)
		}
		out[i] = collect.Target{Name: h.Name, Address: strings.Trim(host, "[]")}
	}
	return out, nil
}

// sshConfigHint says where ssh has from what is not in a list of hosts.
const sshConfigHint = "ssh takes users, ports, keys and jump hosts from ~/.ssh/config"

// sshPort stands for the one that ssh is configured to use.
const sshPort = "22"

func listError(err error) error {
	var of *hostlist.LineError
	if errors.As(err, &of) {
		return fmt.Errorf("line %d: %w", of.Line, of.Err)
	}
	return pkgerr.Plain(err)
}

// loadFleet gives the fleet that arguments name: its document, a folder with one, or hosts to be put together
// here. fabric is the file of --fabric, "" for none.
func loadFleet(ctx context.Context, in *Host, args []string, fabric string) (*model.Fleet, error) {
	network, err := fleetNetwork(ctx, in, fabric)
	if err != nil {
		return nil, err
	}
	in = withPipe(ctx, in)
	if len(args) == 1 {
		f, err := fleetDocument(ctx, in, args[0])
		if err != nil {
			return nil, err
		}
		if f != nil {
			return f.Rebuild(network)
		}
	}
	sources, err := describedFile(in, args)
	if err != nil {
		return nil, err
	}
	hosts, err := collect.Run(ctx, sources, collect.Options{Decode: in.Decode})
	if err != nil {
		return nil, pkgerr.Plain(err)
	}
	f, err := model.Build(hosts, network)
	if err != nil {
		return nil, err
	}
	f.Tool = build.Tool()
	return f, nil
}

// someReached is the error of a fleet of which nothing is known: what is made of it would be empty.
func someReached(f *model.Fleet) error {
	if !f.NoneReached() {
		return nil
	}
	if len(f.Hosts) == 0 {
		return errors.New("the fleet has no hosts")
	}
	return withHint(fmt.Errorf("no host was reached: %s", f.WhyUnreached()), "\"topoctl fleet show --by host\" has the reason of each")
}

// fleetDocument reads a fleet's document, nil where the argument is something else: describedFile reads that,
// or says what is wrong with it.
func fleetDocument(ctx context.Context, in *Host, arg string) (*model.Fleet, error) {
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		arg = filepath.Join(arg, collect.FleetFile)
	}
	switch {
	case arg == "-" && (isPipedArchive(in) || !model.Detect(collect.Unpacked(pipedHead(in)))):
		return nil, nil //nolint:nilnil // a host, or an archive of hosts
	case arg != "-" && (!isFile(arg) || collect.IsArchive(arg)):
		return nil, nil //nolint:nilnil // hosts
	}
	data, err := in.ReadFile(ctx, arg)
	switch {
	case arg == "-" && err != nil:
		return nil, err
	case arg == "-":
		arg = stdinName
	case err != nil || !model.Detect(data[:min(len(data), 4<<10)]):
		return nil, nil //nolint:nilnil,nilerr // a host, which is not reached where its file cannot be read
	}
	f, err := model.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", arg, pkgerr.Plain(err))
	}
	return f, nil
}

// isFile says whether a file is there that is no folder.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}

// fleetNetwork reads the file of --fabric, nil for none.
func fleetNetwork(ctx context.Context, in *Host, file string) (*model.Network, error) {
	f, err := in.ReadFabric(ctx, file)
	if f == nil || err != nil {
		return nil, err
	}
	return model.FromFabric(f, file), nil
}
