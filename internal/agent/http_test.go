package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/engine"
	"github.com/topoctl/topoctl/internal/record"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// still is an engine that stands still.
type still struct {
	stats  engine.Stats
	recent []*engine.Explanation
	topo   *topo.Topology
}

func (s *still) Stats() engine.Stats           { return s.stats }
func (s *still) Recent() []*engine.Explanation { return s.recent }
func (s *still) Topology() *topo.Topology      { return s.topo }

func sample(t *testing.T) *still {
	t.Helper()
	host := fixturetest.Topology(t, "cpu-2eth")
	read, written, rate := int64(7), int64(1)<<40, topo.Rate(1e9)
	return &still{topo: host, recent: []*engine.Explanation{{
		Schema: engine.SchemaExplain, Peer: "n2", Label: "kv", State: "failed", Error: "evil\x1b[2J", Bytes: 5, Total: 6, Ops: 1, DurationNS: 1e6,
		EndedAgoNS: 1e9, Check: "no checksums", Retries: 1, Notes: []string{"note"}, Fences: []engine.Fence{{Conn: 3}},
		Routes: []engine.RouteRecord{{Local: "cpu:0", Remote: "gpu:1", Bytes: 5,
			Groups: []engine.GroupRecord{{Transport: "tcp", Rejected: []string{"eth1: down"}, Lanes: []engine.LaneRecord{
				{Lane: "eth0 > n2:eth1", Verdict: "chosen", ExpectedBytesPerSec: &rate, Reason: "near", Health: "sick"}}}},
			Used: []engine.LaneUse{{Lane: "eth0 > n2:eth1", Transport: "tcp", Bytes: 5, Slices: 1, Retries: 1, LastNS: 9e5, Error: "reset"}}}},
	}}, stats: engine.Stats{
		Served: []engine.ServedStats{
			{Conn: 1 << 63, Peer: "n3", Transport: "tcp", LocalAddress: "10.0.0.1:7411", RemoteAddress: "10.0.0.3:9", LocalPort: "net:eth0", ReadBytes: &read, WrittenBytes: &written},
			{Conn: 1, Peer: "n3", Transport: "shm"},
		}, ServedUnlisted: 2,
		Failures:       engine.Failures{Opens: map[string]int64{"unreachable": 42}},
		RefusedReasons: map[string]int64{"denied": 4},
		RefusedConns:   map[string]int64{"wrong_token": 15_000, "gone": 0},
		RefusedCalls:   map[string]int64{"memory": 47}, PeerBytes: 1 << 20, PeerBytesLimit: 1 << 30,
		Name: "n1", Epoch: 1 << 63, Batches: 7, Retries: 2, ServedWrittenBytes: 1 << 40, ServedUncounted: []string{"shm"},
		DroppedConns: map[string]int64{"header-tag": 2},
		Peers:        []engine.PeerStats{{Name: "evil\"\n\\\xff", State: "open", RoundTripNS: 1500}, {Name: "n3", State: "lost"}},
		Lanes: []engine.LaneStats{
			{Peer: "n2", Lane: "eth0 > n2:eth1", Transport: "tcp", Health: "sick", Bytes: 5, InflightBytes: 3, BytesPerSec: 1e9, Measured: true, Retries: 2, Failures: 1},
			{Peer: "n2", Lane: "eth0 > n2:eth1", Transport: "tcp", Health: "healthy", Bytes: 6},
			{Peer: "n2", Lane: "shm", Transport: "shm", Health: "idle"},
		},
		Regions: []engine.RegionStats{{ID: 1<<32 | 1, Name: "bench", Bytes: 4096, Read: true}},
	}}
}

func TestHTTP(t *testing.T) {
	h := &handler{source: sample(t), started: time.Unix(1700000000, 5e8)}
	server := httptest.NewServer(newServer(h).Handler)
	defer server.Close()
	get := func(path string, want int, kind string) string {
		t.Helper()
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: %s, %s, %v", path, resp.Status, resp.Header.Get("Content-Type"), err)
		}
		return string(body)
	}
	pages := regexp.MustCompile(`href="([^"#]+)"`).FindAllStringSubmatch(get("/", 200, "text/html"), -1)
	for _, page := range pages { // the index links to those that there are
		get("/"+page[1], 200, "")
	}
	if len(pages) != 4 {
		t.Errorf("the index links to %v", pages)
	}
	get("/nothing", 404, "text/plain")
	if got := get("/healthz", 200, "text/plain"); got != "ok\n" {
		t.Errorf("health: %q", got)
	}
	if _, err := topo.Decode([]byte(get("/v1/topology", 200, "application/json"))); err != nil {
		t.Errorf("topology: %v", err)
	}
	var doc map[string]any
	text := get("/v1/engine", 200, "application/json")
	if err := json.Unmarshal([]byte(text), &doc); err != nil || doc["schema"] != SchemaEngine || doc["epoch"] != "9223372036854775808" || len(doc["lanes"].([]any)) != 3 {
		t.Errorf("engine: %v: %s", err, text)
	}
	if r, ok := doc["recent_batches"].([]any); !ok || len(r) != 1 || r[0].(map[string]any)["label"] != "kv" {
		t.Errorf("recent batches: %v", doc["recent_batches"])
	}
	served := doc["served"].([]any)
	if a, b := served[0].(map[string]any), served[1].(map[string]any); a["conn"] != "9223372036854775808" || a["read_bytes"] != 7.0 || b["read_bytes"] != nil {
		t.Errorf("served: %v", served)
	}
	var seen record.Engine // what the dashboard reads of it
	if err := json.Unmarshal([]byte(text), &seen); err != nil || seen.Recent[0].Routes[0].Used[0].Error != "reset" ||
		*seen.Recent[0].Routes[0].Groups[0].Lanes[0].ExpectedBytesPerSec != 1e9 || *seen.Served[0].WrittenBytes != 1<<40 || seen.Served[1].WrittenBytes != nil {
		t.Errorf("for the dashboard: %v: %+v", err, seen)
	}
	if !strings.HasPrefix(text, `{"schema":`) {
		t.Errorf("schema is not first: %.40s", text)
	}
	get("/nothing", 404, "text/plain")
	resp, err := http.Post(server.URL+"/healthz", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", resp.Status)
	}
	h.stopping.Store(true)
	get("/healthz", 503, "text/plain")
	h.source = &still{}
	get("/v1/topology", 404, "text/plain")
}

// The host is looked at for the page that shows it, not for each client anew, and a look that
// failed is not what later clients get.
func TestHostMetrics(t *testing.T) {
	looks, failure := 0, errors.New("no /sys")
	h := &handler{source: sample(t), names: []string{"example.com"}, look: func(context.Context) ([]byte, error) {
		looks++
		return []byte("topoctl_complete 1\n"), failure
	}}
	server := newServer(h).Handler
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, text := get("/metrics/host"); code != http.StatusServiceUnavailable || text != "no /sys\n" {
		t.Errorf("a look that fails: %d, %q", code, text)
	}
	failure = nil
	for range 2 {
		if code, text := get("/metrics/host"); code != http.StatusOK || text != "topoctl_complete 1\n" || looks != 2 {
			t.Errorf("%d, %q after %d looks", code, text, looks)
		}
	}
	h.looked = h.looked.Add(-hostEvery)
	if get("/metrics/host"); looks != 3 {
		t.Errorf("%d looks, want another one later", looks)
	}
	if _, text := get("/"); !strings.Contains(text, `href="metrics/host"`) {
		t.Errorf("the index does not link to it: %s", text)
	}
	h.look = nil // only an agent looks at its host
	server = newServer(h).Handler
	if code, _ := get("/metrics/host"); code != http.StatusNotFound {
		t.Errorf("without a look: %d", code)
	}
}

func TestMetrics(t *testing.T) {
	text := string(metricsText(sample(t).stats, time.Unix(1700000000, 5e8)))
	for _, want := range []string{
		`topoctl_engine_info{name="n1",epoch="9223372036854775808"} 1`,
		`topoctl_engine_start_time_seconds 1700000000.5`,
		`topoctl_engine_dropped_connections_total{reason="header-tag"} 2`,
		`topoctl_engine_failures_total{what="open",reason="unreachable"} 42`,
		`topoctl_engine_refused_requests_total{reason="denied"} 4`,
		`topoctl_engine_refused_connections_total{reason="wrong_token"} 15000`,
		`topoctl_engine_refused_connections_total{reason="gone"} 0`,
		`topoctl_engine_served_uncounted{transport="shm"} 1`,
		`topoctl_engine_served_written_bytes_total 1099511627776`,
		`topoctl_engine_region_bytes{region="bench",id="4294967297",read="true",write="false"} 4096`,
		`topoctl_engine_peer_open{peer="evil\"\n\\` + "\uFFFD" + `"} 1`,
		`topoctl_engine_peer_open{peer="n3"} 0`,
		`topoctl_engine_peer_round_trip_seconds{peer="evil\"\n\\` + "\uFFFD" + `"} 0.0000015`,
		`topoctl_engine_lane_bytes_total{peer="n2",lane="eth0 > n2:eth1",transport="tcp"} 5`,
		`topoctl_engine_lane_service_bytes_per_second{peer="n2",lane="eth0 > n2:eth1",transport="tcp",measured="true"} 1000000000`,
		`topoctl_engine_lane_health{peer="n2",lane="eth0 > n2:eth1",transport="tcp",health="sick"} 1`,
		`topoctl_engine_lane_health{peer="n2",lane="eth0 > n2:eth1",transport="tcp",health="idle"} 0`,
		`topoctl_engine_lane_retries_total{peer="n2",lane="eth0 > n2:eth1",transport="tcp"} 2`,
	} {
		if strings.Count(text, want+"\n") != 1 {
			t.Errorf("%d times: %s", strings.Count(text, want+"\n"), want)
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		id := line[:strings.LastIndexByte(line, ' ')]
		if seen[id] && !strings.HasPrefix(line, "#") {
			t.Errorf("twice: %s", id)
		}
		seen[id] = true
	}
	if strings.Contains(text, `service_bytes_per_second{peer="n2",lane="shm"`) {
		t.Error("a rate that is not known has a sample")
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("not checked by promtool: it is not installed")
		return
	}
	check := exec.Command(promtool, "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v: %s", err, out)
	}
}

// So many clients are let in, the next one when one has gone; closing does not
// wait for any.
func TestBounded(t *testing.T) {
	listeners, err := listenHTTP(t.Context(), []string{"127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ln := listeners[0]
	accepted := make(chan net.Conn, maxClients+2)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range maxClients + 1 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var in []net.Conn
	for range maxClients {
		in = append(in, <-accepted)
	}
	select {
	case <-accepted:
		t.Error("one too many is let in")
	case <-time.After(50 * time.Millisecond):
	}
	in[0].Close()
	in[0].Close() // a second time gives back nothing
	in[0] = <-accepted
	ln.Close()
	<-ended
	for _, c := range in {
		c.Close()
	}
}

// A name that is not ours does not get an answer, wherever it resolves to.
func TestRequestsForOtherNames(t *testing.T) {
	h := newServer(&handler{source: sample(t), names: []string{"n1.example.net"}}).Handler
	for host, want := range map[string]int{
		"127.0.0.1:9411": 200, "10.0.0.1": 200, "[::1]:9411": 200, "[fe80::1%eth0]:9411": 200, "localhost:9411": 200, "a.localhost": 200, "n1": 200, "N1.example.net.:9411": 200, "": 200,
		"attacker.example:9411": 421, "127.0.0.1.attacker.example": 421, "n1.example.net.attacker.example": 421, "localhost.attacker.example:9411": 421, "n2.example.net": 421,
	} {
		for _, page := range []string{"/v1/topology", "/metrics", "/"} {
			r, w := httptest.NewRequest(http.MethodGet, page, nil), httptest.NewRecorder()
			r.Host = host
			h.ServeHTTP(w, r)
			if w.Code != want || want != 200 && strings.Contains(w.Body.String(), "schema") {
				t.Errorf("%s at %q: %d, want %d", page, host, w.Code, want)
			}
		}
	}
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := ownNames([]string{"Node1.example.net:9411", "[::1]:0"}); !slices.Equal(got, []string{strings.ToLower(own), "node1.example.net", "::1"}) {
		t.Errorf("names: %q", got)
	}
}

// Clients that say nothing, that stay after their answer, and that do not read it keep no one
// out, however many they are.
func TestClientsThatStay(t *testing.T) {
	long := make([]byte, 16<<20) // more than kernels keep for a client that does not read
	look := func(context.Context) ([]byte, error) { return long, nil }
	pages, err := ServePages(t.Context(), []string{"127.0.0.1:0"}, sample(t), look)
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Stop(t.Context())
	address := pages.Addresses()[0]
	host := "Host: " + address + "\r\n\r\n"
	for name, say := range map[string]string{
		"silent": "", "half a request": "GET /healthz HTTP/1.1\r\n", "idle": "GET /healthz HTTP/1.1\r\n" + host, "not reading": "GET /metrics/host HTTP/1.1\r\n" + host,
	} {
		for range 2 * maxClients {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, say); err != nil {
				t.Fatal(err)
			}
		}
		client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get("http://" + address + "/healthz")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		answer.Body.Close()
	}
}
