package collect_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/collect"
	"github.com/topoctl/topoctl/internal/ssh"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// write stands for the command's, which is atomic.
func write(name string, data []byte) error { return os.WriteFile(name, data, 0o600) }

// decode reads topologies, packed or not.
func decode(_ context.Context, _ string, data []byte) (*topo.Topology, error) {
	return topo.Decode(data)
}

// document is that of a fixture.
func document(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := fixturetest.Topology(tb, name).Encode()
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func each(list ...collect.Source) iter.Seq2[collect.Source, error] {
	return func(yield func(collect.Source, error) bool) {
		for _, s := range list {
			if !yield(s, nil) {
				return
			}
		}
	}
}

func static(name string, data []byte, err error) collect.Source {
	return collect.Source{Name: name, From: "test " + name, Read: func(context.Context) ([]byte, error) { return data, err }}
}

// byName sorts what was collected.
func byName(hosts []fleet.Host) []fleet.Host {
	slices.SortFunc(hosts, func(a, b fleet.Host) int { return strings.Compare(a.Host, b.Host) })
	return hosts
}

// A host that gives no document, or one that cannot be read, is a row with the reason.
func TestRun(t *testing.T) {
	good := document(t, "cpu-2eth")
	var progress []collect.Progress
	hosts, err := collect.Run(t.Context(), each(static("a", good, nil), static("b", nil, errors.New("no \x1b[2J route")), static("c", []byte("{"), nil), static("d", []byte("{}"), nil)),
		collect.Options{Decode: decode, Parallel: 2, Progress: func(p collect.Progress) { progress = append(progress, p) }})
	if err != nil || len(hosts) != 4 {
		t.Fatal(hosts, err)
	}
	byName(hosts)
	if hosts[0].Status != fleet.OK || hosts[0].Source != "test a" || hosts[0].Document != "" || hosts[0].Fingerprint == "" {
		t.Errorf("%+v", hosts[0])
	}
	for i, want := range []string{`no \x1b[2J route`, "truncated", "no \"schema\" key"} {
		if h := hosts[i+1]; h.Status != fleet.NotReached || !strings.Contains(h.Reason, want) {
			t.Errorf("%+v, want %q", h, want)
		}
	}
	if last := progress[len(progress)-1]; len(progress) != 4 || last.Done != 4 || last.NotReached != 3 {
		t.Errorf("%+v", progress)
	}
}

// A name that is there twice, or that no host can have, costs its own host and no other.
func TestDuplicateNames(t *testing.T) {
	good := document(t, "cpu-2eth")
	hosts, err := collect.Run(t.Context(), each(static("a", good, nil), static("a", good, nil), static("a", good, nil), static("", good, nil), static(strings.Repeat("x", 300), good, nil), static("b", good, nil)),
		collect.Options{Decode: decode})
	if err != nil {
		t.Fatal(err)
	}
	byName(hosts)
	var got []string
	for i := range hosts {
		h := &hosts[i]
		if got = append(got, h.Host+" "+string(h.Status)); h.Status != fleet.OK && h.Reason == "" {
			t.Errorf("%+v", h)
		}
	}
	want := []string{"#2 not-reached", "a ok", "a#2 not-reached", "a#3 not-reached", "b ok", strings.Repeat("x", 200) + "#2 not-reached"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := fleet.Build(hosts, nil); err != nil {
		t.Error(err)
	}
}

// Documents are stored, and a collection that was ended goes on where it was. Damaged ones are
// collected again.
func TestStoreAndResume(t *testing.T) {
	dir, good := t.TempDir(), document(t, "cpu-2eth")
	store, err := collect.OpenStore(dir, write)
	if err != nil {
		t.Fatal(err)
	}
	asked := atomic.Int64{}
	source := func(name string) collect.Source {
		return collect.Source{Name: name, From: "test", Read: func(context.Context) ([]byte, error) {
			asked.Add(1)
			return good, nil
		}}
	}
	all := each(source("n1"), source("n2"), source("../../etc/passwd"), source(".hidden"), source(strings.Repeat("n", 255)))
	run := func(resume bool) []fleet.Host {
		t.Helper()
		hosts, err := collect.Run(t.Context(), all, collect.Options{Decode: decode, Store: store, Resume: resume})
		if err != nil {
			t.Fatal(err)
		}
		return byName(hosts)
	}
	first := run(false)
	for _, h := range first {
		packed, err := os.ReadFile(filepath.Join(dir, h.Document))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		var plain bytes.Buffer
		if _, err := plain.ReadFrom(z); err != nil || !bytes.Equal(plain.Bytes(), good) {
			t.Errorf("%s: %v", h.Document, err)
		}
	}
	f, err := fleet.Build(first, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := f.Encode()
	if err == nil {
		_, err = fleet.Decode(data) // it checks the paths of documents
	}
	if err != nil {
		t.Error(err)
	}
	if outside, _ := filepath.Glob(filepath.Join(dir, "hosts", ".*")); len(outside) > 0 {
		t.Errorf("hidden files: %q", outside)
	}
	asked.Store(0)
	if again := run(true); asked.Load() != 0 || len(again) != len(first) || again[1].SHA256 != first[1].SHA256 || again[1].Document != first[1].Document {
		t.Errorf("%d were asked again: %+v", asked.Load(), again)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts", "n1.json.gz"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if run(true); asked.Load() != 1 {
		t.Errorf("%d were asked again, want the damaged one", asked.Load())
	}
	if err := store.Drop(func(path string) bool { return path == "hosts/n2.json.gz" }); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "hosts", "*")); len(left) != 1 {
		t.Errorf("%q", left)
	}
}

// What cannot be stored ends the collection: without room there is no result.
func TestStoreFails(t *testing.T) {
	dir := t.TempDir()
	store, err := collect.OpenStore(dir, write)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := collect.Run(t.Context(), each(static("a", document(t, "cpu-2eth"), nil)), collect.Options{Decode: decode, Store: store}); err == nil || !strings.Contains(err.Error(), "a: ") {
		t.Error(err)
	}
}

// When the caller gives up, all workers end.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	hang := collect.Source{Name: "a", Read: func(ctx context.Context) ([]byte, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	go func() {
		<-started
		cancel()
	}()
	if _, err := collect.Run(ctx, each(hang), collect.Options{Decode: decode}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// archiveOf makes a tar archive.
func archiveOf(tb testing.TB, packed bool, files map[string][]byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(files[name])), Mode: 0o644, Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write(files[name])
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if packed {
		return pack(tb, out.Bytes())
	}
	return out.Bytes()
}

func pack(tb testing.TB, data []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(data)
	if err = errors.Join(err, z.Close()); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// An archive is known by its first bytes, packed or not. One that is cut off, one of nothing, and one of files that are no
// hosts' end with the reason.
func TestArchive(t *testing.T) {
	good := document(t, "cpu-2eth")
	path := filepath.Join(t.TempDir(), "fleet.tar")
	read := func(data []byte) (got []string, err error) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		hosts, err := collect.Run(t.Context(), collect.Archive(path), collect.Options{Decode: decode})
		for _, h := range byName(hosts) {
			got = append(got, h.Host+" "+string(h.Status)+" "+h.Source)
		}
		return got, err
	}
	for _, packed := range []bool{false, true} {
		data := archiveOf(t, packed, map[string][]byte{"all/n1.json": good, "all/n2.json.gz": pack(t, good), "all/README": []byte("x"), "all/.n3.json": []byte("x"), "b/n1.json": good, "fleet.json": []byte("{}")})
		if !collect.DetectArchive(data[:1<<10]) {
			t.Errorf("packed %v: not detected", packed)
		}
		want := []string{"b/n1 ok file b/n1.json of fleet.tar", "n1 ok file all/n1.json of fleet.tar", "n2 ok file all/n2.json.gz of fleet.tar"}
		if got, err := read(data); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
		if _, err := read(data[:len(data)/2]); err == nil || !strings.Contains(err.Error(), "fleet.tar: tar: unexpected EOF") {
			t.Error(err)
		}
	}
	for _, data := range [][]byte{nil, []byte("\x1f\x8b"), good, pack(t, good)} {
		if collect.DetectArchive(data) {
			t.Errorf("%.10q is no archive", data)
		}
	}
	for reason, data := range map[string][]byte{"tar: ": pack(t, []byte(strings.Repeat("no archive", 100))), "no documents of hosts": archiveOf(t, false, map[string][]byte{"README": []byte("x")})} {
		if _, err := read(data); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, want %s", err, reason)
		}
	}
}

// Whatever is piped in, an archive of it ends, with hosts that have names or with a reason.
func FuzzArchive(f *testing.F) {
	for _, packed := range []bool{false, true} {
		data := archiveOf(f, packed, map[string][]byte{"n1.json": []byte("{}"), "a/n1.json": []byte("{}"), "n2.json.gz": pack(f, []byte("x"))})
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		collect.DetectArchive(data)
		hosts := 0
		for s, err := range collect.ArchiveOf(bytes.NewReader(data), "fuzz") {
			if err != nil {
				break
			}
			if hosts++; s.Name == "" || s.From == "" || s.Read == nil {
				t.Fatalf("%+v", s)
			}
			if _, err := s.Read(t.Context()); err != nil {
				continue
			}
		}
	})
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"n1.json", "n10.json", "n2.json.gz", "fleet.json", "README.md", ".x.json", "rack/topology.json", "rack2/topology.json", "a/b/c/d/e/deep.json"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	files, err := collect.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := collect.Names(dir, files), []string{"n1", "n2", "n10", "rack/topology", "rack2/topology"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Agents are asked over HTTP. One that answers too late, too much, or something else is not reached.
func TestAgents(t *testing.T) {
	good := document(t, "cpu-2eth")
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good/v1/topology":
			_, _ = w.Write(good)
		case "/hang/v1/topology":
			select {
			case <-release:
			case <-r.Context().Done():
			}
		case "/long/v1/topology":
			for range 10 << 10 {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<10)); err != nil {
					return
				}
			}
		case "/redirect/v1/topology":
			http.Redirect(w, r, "/good/v1/topology", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	defer close(release)
	var targets []collect.Target
	for _, name := range []string{"good", "long", "other", "redirect"} {
		targets = append(targets, collect.Target{Name: name, Address: server.URL + "/" + name})
	}
	targets = append(targets, collect.Target{Name: "refused", Address: "http://127.0.0.1:1"})
	hosts, err := collect.Run(t.Context(), each(collect.Agents(targets, nil)...), collect.Options{Decode: decode, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	hang := collect.Agents([]collect.Target{{Name: "hang", Address: server.URL + "/hang"}}, nil)
	late, err := collect.Run(t.Context(), each(hang...), collect.Options{Decode: decode, Timeout: 100 * time.Millisecond})
	if err != nil || late[0].Reason != "no answer within 100ms" {
		t.Errorf("%+v, %v", late, err)
	}
	for i, want := range []string{"", "longer than 8 MiB", "404", "redirects are not followed", "connection refused"} {
		if h := byName(hosts)[i]; !strings.Contains(h.Reason, want) || (h.Status == fleet.OK) != (want == "") {
			t.Errorf("%s: %s %q, want %q", h.Host, h.Status, h.Reason, want)
		}
	}
}

// topoctl is run on hosts by ssh, here one that runs the command on this machine as sshd does, by a shell.
func TestLaunch(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "host.json"), document(t, "cpu-2eth"), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	program := write("ssh", `printf '%s\n' "$*" >> '`+dir+`/calls'
host=; for word in "$@"; do if [ "$seen" ]; then host=$word; break; fi; [ "$word" = -- ] && seen=1; done
for last in "$@"; do :; done
[ "$host" = denied ] && { echo "Permission denied (publickey)." >&2; exit 255; }
export HOST="$host"; exec sh -c "$last"`)
	command := write("my topoctl", `[ "$1 $2" = "discover --quiet" ] || { echo "arguments: $*" >&2; exit 2; }
case "$HOST" in
good) cat '`+dir+`/host.json';;
partial) cat '`+dir+`/host.json'; exit 3;;
empty) ;;
broken) echo "no such command" >&2; exit 127;;
hang) echo working >&2; exec sleep 600;;
endless) exec yes;;
esac`)
	var targets []collect.Target
	for _, name := range []string{"broken", "denied", "empty", "endless", "good", "partial", "-oProxyCommand=evil"} {
		targets = append(targets, collect.Target{Name: name, Address: name})
	}
	launch := collect.Launch{SSH: ssh.Program{Words: []string{program}}, Command: []string{command}}
	hosts, err := collect.Run(t.Context(), each(launch.Hosts(targets)...), collect.Options{Decode: decode, Timeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	hang := launch.Hosts([]collect.Target{{Name: "hang", Address: "hang"}})
	late, err := collect.Run(t.Context(), each(hang...), collect.Options{Decode: decode, Timeout: 500 * time.Millisecond})
	if err != nil || !strings.HasPrefix(late[0].Reason, "no answer within 500ms") {
		t.Errorf("%+v, %v", late, err)
	}
	for i, want := range []string{"want an IP address or a host name", "exit status 127: no such command (--launch-command says where", "ssh: Permission denied", "printed nothing", "larger than 64 MiB", "", ""} {
		h := byName(hosts)[i]
		if !strings.Contains(h.Reason, want) || (h.Status == fleet.OK) != (want == "") {
			t.Errorf("%s: %s %q, want %q", h.Host, h.Status, h.Reason, want)
		}
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil || !strings.Contains(string(calls), fmt.Sprintf("-T -o BatchMode=yes -o ConnectTimeout=10 -- good '%s' 'discover' '--quiet'", command)) {
		t.Errorf("%v\n%s", err, calls)
	}
	if out, _ := exec.Command("pgrep", "-f", dir).Output(); len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("processes are left: %s", out)
	}
}
