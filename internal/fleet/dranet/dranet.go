// Package dranet answers dranet's webhook on a unix socket: for a network device of this host, the rail and the
// leaf that it is cabled to, its role, its PCIe switch and the GPUs that are nearest.
//
// dranet is told of it by --cloud-provider-hint=webhook --webhook-url=unix:///run/topoctl/dranet.sock, and publishes
// the attributes with the device, so that claims can choose by them.
// Source: kubernetes-sigs/dranet, pkg/cloudprovider/webhook/webhook.go and pkg/cloudprovider/cloud.go.
package dranet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/internal/fleet"
	"github.com/topoctl/topoctl/internal/fleet/export"
	"github.com/topoctl/topoctl/internal/pkgerr"
)

// Options say what is answered.
type Options struct {
	Topology func() *topo.Topology // of this host, as it is now
	Host     string                // as Network calls this host
	Network  *fleet.Network        // how ports are cabled; nil not known
	// Lists also gives attributes that are lists: a cluster without the gate DRAListTypeAttributes refuses
	// devices that have such.
	Lists bool
}

// Server answers until it is stopped.
type Server struct {
	server  *http.Server
	running sync.WaitGroup
	failed  chan error
}

// Bounds of what clients may take: there is one, on this host.
const (
	mostBody       = 64 << 10
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	stopTimeout    = 2 * time.Second
)

// Socket is the path in an address "unix:///run/topoctl/dranet.sock".
func Socket(address string) (path string, err error) {
	path, ok := strings.CutPrefix(address, "unix://")
	const most = 107 // of a unix socket's name, Linux
	if !ok || !strings.HasPrefix(path, "/") || len(path) > most {
		return "", fmt.Errorf("%q: want unix:///PATH with a path of at most %d bytes", address, most)
	}
	return path, nil
}

// Serve answers at a socket, which is made for the user of this process alone. One that a process left behind is
// replaced, one that is answered is not.
func Serve(ctx context.Context, path string, o Options) (*Server, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			_ = conn.Close()
			return nil, pkgerr.Errorf("dranet", "%s: another process answers there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, pkgerr.Errorf("dranet", "%w", err)
		}
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, pkgerr.Errorf("dranet", "%w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(pkgerr.Errorf("dranet", "%w", err), ln.Close())
	}
	s := &Server{failed: make(chan error, 1), server: &http.Server{Handler: Handler(o), ReadHeaderTimeout: headerTimeout,
		ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}}
	s.running.Go(func() {
		if err := s.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- pkgerr.Errorf("dranet", "%s: %w", path, err)
		}
	})
	return s, nil
}

// Failed says when it answers no more, and why.
func (s *Server) Failed() <-chan error { return s.failed }

// Stop lets requests that are being answered end, for a short time, and waits. The socket is removed.
func (s *Server) Stop(ctx context.Context) error {
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer stop()
	var err error
	if s.server.Shutdown(limited) != nil {
		err = s.server.Close()
	}
	s.running.Wait()
	return err
}

// Handler answers the requests.
func Handler(o Options) http.Handler {
	h := &handler{o: o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, struct {
			CloudProvider   bool `json:"cloudProvider"`
			ProfileProvider bool `json:"profileProvider"`
		}{true, false})
	})
	mux.HandleFunc("POST /GetDeviceAttributes", h.attributes)
	mux.HandleFunc("POST /GetDeviceConfig", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := asked(w, r); ok {
			answer(w, struct{}{})
		}
	})
	return mux
}

type handler struct {
	o Options

	mu    sync.Mutex // held while a topology is taken in, so that requests share that
	of    *topo.Topology
	fleet *fleet.Fleet // of this host alone
	err   error
}

// current is the host as it is now, as the only one of a fleet, and its topology.
func (h *handler) current() (*fleet.Fleet, *topo.Topology, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.o.Topology(); t != h.of {
		h.of, h.fleet = t, nil
		var own *fleet.Host
		if own, h.err = fleet.Summarize(h.o.Host, t); h.err == nil {
			h.fleet, h.err = fleet.Build([]fleet.Host{*own}, h.o.Network)
		}
	}
	return h.fleet, h.of, h.err
}

// attributes answers for a device; of one that is no port of this host nothing is known.
func (h *handler) attributes(w http.ResponseWriter, r *http.Request) {
	d, ok := asked(w, r)
	if !ok {
		return
	}
	f, t, err := h.current()
	if err != nil {
		http.Error(w, "the topology of this host cannot be used: "+err.Error(), http.StatusInternalServerError)
		return
	}
	out := export.Attributes{}
	if p := d.port(&f.Hosts[0], t); p != nil {
		out = export.AttributesOf(f, &f.Hosts[0], p, h.o.Lists)
	}
	answer(w, out)
}

// device is what a driver knows of a device: any of it may be empty.
type device struct {
	MAC  string `json:"mac_address"`
	PCI  string `json:"pci_address"`
	Name string `json:"name"`
}

// port finds the port of a device, nil for none: by PCI address, else by MAC, else by name.
func (d *device) port(h *fleet.Host, t *topo.Topology) *fleet.Port {
	mac := func(p *fleet.Port) string {
		if i := slices.IndexFunc(t.Netdevs, func(n topo.Netdev) bool { return n.Name == cmp.Or(p.Netdev, p.Port) }); i >= 0 {
			return t.Netdevs[i].MAC
		}
		return ""
	}
	for _, fits := range []func(p *fleet.Port) bool{
		func(p *fleet.Port) bool { return d.PCI != "" && strings.EqualFold(p.PCI, d.PCI) },
		func(p *fleet.Port) bool { return d.MAC != "" && strings.EqualFold(mac(p), d.MAC) },
		func(p *fleet.Port) bool {
			return d.Name != "" && (p.Netdev == d.Name || p.Device == d.Name || p.Port == d.Name)
		},
	} {
		for i := range h.Ports {
			if fits(&h.Ports[i]) {
				return &h.Ports[i]
			}
		}
	}
	return nil
}

// asked reads which device is asked for.
func asked(w http.ResponseWriter, r *http.Request) (d device, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err == nil {
		err = json.Unmarshal(body, &d)
	}
	if err != nil {
		http.Error(w, "want an object with mac_address, pci_address or name", http.StatusBadRequest)
		return d, false
	}
	return d, true
}

func answer(w http.ResponseWriter, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the client went away
}
