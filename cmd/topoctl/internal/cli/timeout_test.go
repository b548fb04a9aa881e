//go:build unix

package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hangs are commands that wait for what never comes, by name: PIPE and PIPE2 are named pipes that nobody writes to, PEER
// and PEER2 listeners that accept and are silent, - a standard input without an end.
var hangs = map[string][]string{
	"summary":       {"--from PIPE", "--from -"},
	"doctor":        {"--from PIPE"},
	"path":          {"gpu:0 --from PIPE", "gpu:0 --fixture dgx-h100 --peer PIPE", "gpu:0 --fixture dgx-h100 --peer fixture:dgx-h100 --fabric PIPE"},
	"topo":          {"--from PIPE"},
	"matrix":        {"--from PIPE"},
	"tui":           {"--once --from PIPE", "--once --fixture dgx-h100 --baseline PIPE"},
	"watch":         {"--from PIPE", "--fixture dgx-h100 --baseline PIPE"},
	"audit":         {"--from PIPE --log PIPE2", "--fixture dgx-h100 --log PIPE --log PIPE2", "--fixture dgx-h100 --plan PIPE --log PIPE2"},
	"discover":      {"--from PIPE"},
	"diff":          {"PIPE PIPE2"},
	"export":        {"mooncake --from PIPE"},
	"remap":         {"--host PIPE --guest PIPE2"},
	"fleet show":    {"n1=PIPE n2=PIPE2", "-"},
	"fleet check":   {"n1=PIPE n2=PIPE2"},
	"fleet diff":    {"PIPE PIPE2"},
	"fleet collect": {"n1=PIPE n2=PIPE2", "--agents PEER --parallel 1", "--agents PIPE"},
	"fleet export":  {"k8s-labels n1=PIPE n2=PIPE2", "env --for nccl n1=PIPE n2=PIPE2", "dra-attributes fixture:dgx-h100 --fabric PIPE"},
	"fleet fabric":  {"fixture:dgx-h100 --fabric PIPE", "fixture:dgx-h100 --ibnetdiscover PIPE"},
	"probe local":   {"--from PIPE --dry-run"},
	"probe fabric":  {"--hosts PIPE", "--host n1=PEER --host n2=PEER2 --token-file TOKEN", "--host n1=PEER --host n2=PEER2 --token-file PIPE"},
	"bench":         {"--peer PEER", "--peer PEER --token-file PIPE"},
	"agent":         {"--token-file PIPE --listen 127.0.0.1:0"},
	"peers":         {"--registry etcd://PEER"},
	"kv predict":    {"--model llama-3.1-8b --host p=PIPE --host d=PIPE2 --output-len 6"},
	"kv replay":     {"--model llama-3.1-8b --gpu a10 --requests 1 --peer PEER --region kv", "--model llama-3.1-8b --gpu a10 --trace PIPE --peer PEER --region kv"},
	"kv preset":     {}, // reads nothing
}

// --timeout means the same in every command: it bounds all that the command waits for, and what ended it says so.
func TestTimeout(t *testing.T) {
	f := newStreams()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	words := []string{"TOKEN", token}
	for _, name := range []string{"PEER2", "PEER"} {
		silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = silent.Close() })
		words = append(words, name, silent.Addr().String())
	}
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"PIPE2", "PIPE"} {
		pipe := filepath.Join(dir, strings.ToLower(name))
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Skipf("no named pipes can be made here: %v", err)
		}
		words = append(words, name, pipe)
		t.Cleanup(func() { // let those go that still wait
			if w, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil {
				time.Sleep(10 * time.Millisecond)
				_ = w.Close()
			}
		})
	}
	place := strings.NewReplacer(words...)
	const limit = 400 * time.Millisecond
	for _, c := range runnable(commands(&Env{Streams: f.Streams, Now: time.Now})) {
		name := strings.TrimPrefix(c.CommandPath(), "topoctl ")
		if !slices.Contains(strings.Fields(c.Annotations["uses"]), "timeout") {
			continue
		}
		if hangs[name] == nil {
			t.Errorf("%s has --timeout and no run here", name)
		}
		for _, args := range hangs[name] {
			t.Run(name+" "+args, func(t *testing.T) {
				t.Parallel()
				in, hold, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _, _ = hold.Close(), in.Close() }()
				f := newStreams()
				f.In = in
				began := time.Now()
				code := runFake(t.Context(), f, slices.Concat(strings.Fields(name), strings.Fields(place.Replace(args)), []string{"--timeout", limit.String()})...)
				took := time.Since(began)
				said := f.Stderr.String() + f.Stdout.String()
				if code == exitOK || took < limit/2 || took > 10*time.Second || !strings.Contains(said, limit.String()) && !strings.Contains(said, "in time") {
					t.Errorf("code %d after %s:\n%s", code, took, said)
				}
			})
		}
	}
}

// What is left of an export is to read and to compute, host after host: the time ends that, too.
func TestTimeoutOfComputing(t *testing.T) {
	f := newStreams()
	dir := t.TempDir()
	args := []string{"fleet", "collect", "--out-dir", dir}
	for i := range 60 {
		args = append(args, fmt.Sprintf("n%d=fixture:dgx-h100", i))
	}
	if code := runFake(t.Context(), f, args...); code != 0 {
		t.Fatal(f.Stderr.String())
	}
	args = []string{"fleet", "export", "env", "--for", "nccl", dir, "--timeout", "60ms"}
	if code := runFake(t.Context(), f, args...); code != exitFailed || !strings.Contains(f.Stderr.String(), "gave up after 60ms") {
		t.Errorf("%q: code %d: %s", args, code, f.Stderr.String())
	}
}
