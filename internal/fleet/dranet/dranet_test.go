package dranet_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/dranet"
	"github.com/topoctl/topoctl/pathsel"
	"github.com/topoctl/topoctl/testkit/fixturetest"
)

// A webhook on a socket answers as dranet asks.
func TestServe(t *testing.T) {
	top := fixturetest.Topology(t, "dgx-h100")
	file, err := pathsel.ParseFabric([]byte(`{"schema":"topoctl.fabric/v1","hosts":[{"host":"n1","ports":[{"port":"mlx5_0/1","rail":0,"leaf":"A09-P1-IBLEAF-04-04"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	o := dranet.Options{Topology: func() *topo.Topology { return top }, Host: "n1", Network: fleet.FromFabric(file, "f"), Lists: true}
	s, err := dranet.Serve(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dranet.Serve(t.Context(), path, o); err == nil || !strings.Contains(err.Error(), "another process answers there") {
		t.Errorf("a second server: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	ask := func(method, page, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+page, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(data)
	}
	data0 := `{"topoctl.dev/gpuClass":{"string":"PXB"},"topoctl.dev/leaf":{"string":"A09-P1-IBLEAF-04-04"},"topoctl.dev/nearestGPU":{"string":"0000:1b:00.0"},` +
		`"topoctl.dev/nearestGPUs":{"strings":["0000:1b:00.0"]},"topoctl.dev/pcieSwitch":{"string":"0000:16:00.0"},"topoctl.dev/rail":{"int":0},"topoctl.dev/role":{"string":"data"}}`
	for _, c := range []struct {
		method, page, body string
		code               int
		want               string
	}{
		{"GET", "/health", "", 200, `{"cloudProvider":true,"profileProvider":false}`},
		{"POST", "/GetDeviceAttributes", `{"pci_address":"0000:18:00.0","name":"pci-0000-18-00-0"}`, 200, data0},
		{"POST", "/GetDeviceAttributes", `{"name":"ibp24s0"}`, 200, data0},
		{"POST", "/GetDeviceAttributes", `{"mac_address":"00:00:10:29:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:ea:b7:a0","name":"x"}`, 200, data0},
		{"POST", "/GetDeviceAttributes", `{"name":"lo"}`, 200, `{}`},
		{"POST", "/GetDeviceConfig", `{"name":"ibp24s0"}`, 200, `{}`},
		{"POST", "/GetDeviceAttributes", `[`, 400, ""},
		{"POST", "/GetDeviceAttributes", `{"name":"` + strings.Repeat("x", 1<<17) + `"}`, 400, ""},
		{"GET", "/GetDeviceAttributes", "", 405, ""},
		{"POST", "/GetProfileConfig", `{}`, 404, ""},
	} {
		code, got := ask(c.method, c.page, c.body)
		if code != c.code || c.want != "" && got != c.want {
			t.Errorf("%s %s %.60s: %d %s\nwant %d %s", c.method, c.page, c.body, code, got, c.code, c.want)
		}
		if code == 200 && !json.Valid([]byte(got)) {
			t.Errorf("%s", got)
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// A socket that a process left behind is replaced; what is no socket stays.
func TestLeftBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	s, err := dranet.Serve(t.Context(), path, dranet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dranet.Serve(t.Context(), file, dranet.Options{}); err == nil {
		t.Error("a file was replaced")
	}
	for _, bad := range []string{"", "unix://", "unix://relative", "tcp://x", "/run/x", "unix:///" + strings.Repeat("x", 200)} {
		if _, err := dranet.Socket(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
