package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/topoctl/topoctl/engine/memory"
	"github.com/topoctl/topoctl/internal/bench"
	"github.com/topoctl/topoctl/internal/kv/serve"
)

// refused are commands that a user mistypes, and a part of what they say.
const refused = `
agent --listen 0.0.0.0:7411 | --listen 0.0.0.0:7411: a token or certificate is required
agent --listen :7411 | a token or certificate is required
agent --listen [fe80::1]:7411 | a token or certificate is required
agent --listen 127.0.0.1:0,node1:0 | --listen node1:0: a token
agent --listen= | --listen
agent --listen http://x/ | want host:port
agent --listen 127.0.0.1:99999 | --listen "127.0.0.1:99999": port "99999": want 0 to 65535
agent --http 0.0.0.0:9411 | --http 0.0.0.0:9411: without a token, only this host is served
agent --http [::]:9411 | --http [::]:9411: without a token
agent --http 9411 | --http "9411": want host:port
agent --size 0B | --size
agent --region kv | --region "kv": want NAME=SIZE
agent --region kv=1MiB@:read | --region "kv=1MiB@:read": want NAME=SIZE
agent --region kv=1MiB:write | --region "kv=1MiB:write"
agent --grants= | --grants is empty
agent --probe-targets 10.0.0.0/8 | --probe-targets needs --serve-probes
agent --serve-probes --probe-targets 10.0.0.0/33 | --probe-targets "10.0.0.0/33": want a network
agent --region bench=1MiB | region bench is given twice
agent --rank 1 | --rank needs --ranks
agent --rank 2 --ranks 2 | --rank 2: want 0 to 1
agent --ranks 0 | --ranks 0: want 1 or more
agent --token-file= | --token-file is empty
agent --fixture dgx-h100 | --fixture has no effect on this command
agent --transport verbs | --transport "verbs": want auto, rdma, tcp or shm
agent --transport tcp,tcp | --transport tcp is given twice
agent --transport tcp --rdma-timeout 14 | --rdma-timeout needs --transport rdma
agent --rdma-gid-index 65536 | --rdma-gid-index 65536: want 0 to 65535
agent --rdma-gid-index=-1 | --rdma-gid-index -1: want 0 to 65535
agent --rdma-retries 7 | --rdma-retries 7: want 1 to 6
agent --rdma-traffic-class 256 | --rdma-traffic-class 256: want 0 to 255
agent --rdma-service-level 16 | --rdma-service-level 16: want 0 to 15
agent --refresh=-1s | --refresh -1s: want 0 or more
bench --op push | --op "push": want read or write
bench --op read,read | --op read is given twice
bench --op= | --op
bench --transport verbs | --transport "verbs": want auto, rdma, tcp or shm
bench --transport tcp --rdma-retries 5 | --rdma-retries needs --transport rdma
bench --protect=much | --protect "much": want open, headers, payload or sealed
bench --protect= | --protect "": want open
bench --size 0 | --size
bench --size 4KiB,4096 | --size 4096 is given twice
bench --size= | --size
bench --batch -1 | --batch -1: want 0 to 1048576
bench --threads 0 | --threads 0: want 1 to 1048576
bench --in-flight 0 | --in-flight 0: want 1 to 1048576
bench --duration 0s | --duration 0s: want more than 0
bench --warmup -1s | --warmup -1s: want 0 or more
bench --memory lots | --memory
bench --lanes 0 | --lanes 0: want 1 or more
bench --lanes 2 --lanes eth0 | --lanes: want one number, or names
bench --lanes= | --lanes is empty
bench --fail-lane eth0 | --fail-lane "eth0": want NAME@TIME
bench --fail-lane @1s | want NAME@TIME
bench --fail-lane eth0@soon | want NAME@TIME
bench --fail-lane eth0@1ms+0s | want NAME@TIME
bench --fail-lane eth0@3s | --fail-lane eth0@3s: a measurement ends after 1s
bench --peer= | --peer is empty
bench --peer :7411 | --peer ":7411": want HOST:PORT
bench --peer n2:http | want HOST:PORT
bench --peer n2:0 | want HOST:PORT
bench --http 9411 | --http "9411": want host:port
bench --token-file x | --token-file needs --peer
bench --region x | --region needs --peer
bench --root /x | --root has no effect on this command
path a b c | unexpected argument "c"
path gpu:0 --plan | --plan is for all GPUs
path gpu:0 --ranks 2 | --ranks needs --plan
path gpu:0 --ranks 2 --plan=false | --ranks needs --plan
path --plan --ranks 0 | --ranks 0
path --plan --engine ucx | --plan and --engine cannot be used together
path --plan --peer x | --plan and --peer cannot be used together
path gpu:0 --bytes 1MiB | --bytes needs --peer
path gpu:0 --policy first | --policy needs --peer
path gpu:0 --fabric x | --fabric needs --peer
path gpu:0 --peer x --bytes 0 | --bytes "0"
path gpu:0 --peer x --bytes 2PiB | --bytes "2PiB"
path gpu:0 --peer x --policy all | --policy "all": want adaptive
path gpu:0 --transport ib | --transport "ib"
path gpu:0 --engine gloo | --engine "gloo": want mooncake, nccl or ucx
path gpu:0 mlx5_0 --engine ucx | no effect with DST
path gpu:0 --k -1 | --k -1
path gpu:0 --peer - --from - | --from - and --peer - cannot be used together
cert host | which host is it for?
cert host node1 | ca.crt: no such file
cert host node1 node2 | unexpected argument "node2"
cert host ca --force | its files would be those of the CA
cert host ../node1 | want the name of a host
cert host *.lan | want the name of a host
cert host node1 --ip node1 | --ip "node1": want an address
cert host node1 --ip fe80::1%eth0 | without zone
cert host node1 --dns a/b | "a/b": want the name
cert host node1 --uri node1 | --uri "node1": want a URI
cert host node1 --days 0 | --days 0: want 1 to 36500
cert host node1 --ca= | --ca is empty
cert ca --days 36501 | --days 36501: want
cert ca --dir none | none/ca.key: no such file
cert ca --dir= | --dir is empty
cert ca -o json | --output has no effect on this command
cert show | which file?
cert show none | none: no such file
cert show . --ca-file ca.crt | is a directory
cert ca --name nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn | --name: want 64 bytes at most
kv replay --model qwen2.5-7b --gpu a10 --peer a --peer b --region x | --region: 1 name at 2 peers cannot be divided among 1 instance
kv replay --model qwen2.5-7b --gpu a10 --peer a --region x,y,z --decode tp4 | 3 names at 1 peer cannot be divided among 1 instance of 4 ranks
kv replay --model qwen2.5-7b --gpu a10 --peer a | --region: 0 names at 1 peer
kv replay --model qwen2.5-7b --gpu a10 --peer a --peer a:7411 --region x --decode 2xtp1 | --peer a:7411 is given twice
kv replay --model qwen2.5-7b --gpu a10 --peer a --region x,x --decode 2xtp1 | --region x is given twice
kv replay --model qwen2.5-7b --gpu a10 --peer a, --region x | --peer is empty
kv replay --model qwen2.5-7b --gpu a10 --region x | --region needs --peer
kv replay --model qwen2.5-7b --gpu a10 --token-file x | --token-file needs --peer
kv replay --model qwen2.5-7b --gpu a10 --location , | --location is empty
kv replay --model qwen2.5-7b --gpu a10 --memory 0 | --memory
`

// A mistake is told before anything is done, by what is wrong and what is wanted.
func TestRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	f := newStreams()
	for line := range strings.Lines(strings.TrimPrefix(refused, "\n")) {
		args, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " | ")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a mistake that is not seen may start an agent
		code := runFake(ctx, f, strings.Fields(args)...)
		cancel()
		if code != exitFailed || f.Stdout.Len() > 0 || !strings.Contains(f.Stderr.String(), want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, f.Stdout.String()+f.Stderr.String(), want)
		}
	}
}

// What an agent is told of addresses and regions is completed.
func TestAgentFlags(t *testing.T) {
	o := &agentOptions{typed: agentTyped{size: 1 << 30, regions: []string{"kv=2MiB", "model=1MiB@gpu:0:read"}}, http: []string{":9411"}, listen: []string{":7411", "127.0.0.1:0", "::1"}}
	o.credentials.Files.Token = "token"
	if err := errors.Join(o.parseRegions(), o.parseAddresses()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.listen, []string{":7411", "127.0.0.1:0", "[::1]:7411"}) || o.http[0] != "127.0.0.1:9411" {
		t.Errorf("listen %q, HTTP %q", o.listen, o.http)
	}
	bench, kv, model := o.regions[0], o.regions[1], o.regions[2]
	if bench.Name != "bench" || bench.Bytes != 1<<30 || kv.Name != "kv" || kv.Bytes != 2<<20 || kv.Grant != memory.PeerRead|memory.PeerWrite || model.Grant != memory.PeerRead || model.Location != "gpu:0" {
		t.Errorf("%+v", o.regions)
	}
}

// Lanes are names or a number; a fault may end.
func TestBenchFlags(t *testing.T) {
	var names, number benchOptions
	if err := errors.Join(names.parseLanes([]string{"eth0", "eth1 > n2:eth1"}), number.parseLanes([]string{"2"})); err != nil || len(names.job.Lanes) != 2 || number.job.LaneCount != 2 || number.job.Lanes != nil {
		t.Errorf("%+v, %+v, %v", names.job, number.job, err)
	}
	want := bench.FaultPlan{Lane: "eth0 > n2:eth@0", At: time.Second, For: 500 * time.Millisecond}
	if got, err := parseFault("eth0 > n2:eth@0@1s+500ms", 5*time.Second); err != nil || *got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

// The regions of peers are shared out among instances, or among their ranks.
func TestReplayFlags(t *testing.T) {
	for _, c := range []struct {
		peers, regions string
		there          kvShape
		move           serve.Move
		each           int
	}{
		{"a", "x", kvShape{1, 1}, serve.Push, 1}, {"a", "x y", kvShape{1, 2}, serve.Push, 2}, {"a b", "x", kvShape{2, 4}, serve.Push, 1},
		{"a b", "x y z w", kvShape{2, 4}, serve.Push, 4}, {"a b", "x", kvShape{2, 1}, serve.Pull, 1}, {"a b", "x", kvShape{1, 4}, serve.Push, 2},
	} {
		o := &replayOptions{peers: strings.Fields(c.peers), regions: strings.Fields(c.regions), servingFlags: servingFlags{move: c.move, decodeShape: c.there}}
		if c.move == serve.Pull {
			o.prefillShape, o.decodeShape = c.there, kvShape{1, 1}
		}
		if err := o.parsePeers(); err != nil || o.regionsEach() != c.each || o.peers[0] != "a:7411" {
			t.Errorf("%+v: %d each, peers %q, %v", c, o.regionsEach(), o.peers, err)
		}
	}
}

// What is measured follows from the flags together.
func TestSampleFlags(t *testing.T) {
	f := newStreams()
	args := strings.Fields("probe local --fixture dgx-h100 -q --dry-run -o json --size 64KiB --duration 1s --min-samples 4 --ci 5% --rate-limit 8Gb/s --bw --select cpu:0->gpu:*")
	if code := runFake(t.Context(), f, args...); code != exitOK {
		t.Fatal(f.Stderr.String())
	}
	var doc planDoc
	if err := json.Unmarshal(f.Stdout.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	s := doc.Spec
	if len(s.SizesBytes) != 1 || s.SizesBytes[0] != 64<<10 || s.SampleTime != 250*time.Millisecond || s.MinSamples != 4 || s.CI != 0.05 || s.RateLimit != 1e9 || s.LatencySamples != 0 || s.PairTime < time.Second {
		t.Errorf("%+v", s)
	}
	for _, r := range doc.Rounds {
		for _, p := range r.Pairs {
			if !strings.Contains(p.ID, "/cpu:0>dgx-h100/gpu:") {
				t.Errorf("%s is selected", p.ID)
			}
		}
	}
	var m measureFlags
	cmd := &cobra.Command{}
	m.addVerdicts(cmd)
	err := cmd.ParseFlags(strings.Fields("--fail-under 0.5 --outlier 90%/3x --retest 2"))
	if r, err2 := m.rules(); errors.Join(err, err2) != nil || r.FailUnder != 0.5 || r.OutlierUnder != 0.9 || r.OutlierOver != 3 || r.Retests != 2 {
		t.Errorf("%+v, %v, %v", r, err, err2)
	}
}
