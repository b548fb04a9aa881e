package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// httpAddresses completes what --http was given. Who serves this host alone, because there is no
// token, serves HTTP to it alone too.
func httpAddresses(list []string, token bool) error {
	for i, a := range list {
		full, err := listenAddress(a, "127.0.0.1", "")
		if err != nil {
			return fmt.Errorf("--http %w", err)
		}
		if !token && !loopbackOnly(full) {
			return withHint(fmt.Errorf("--http %s: without a token, only this host is served", a),
				"HTTP has no passwords: every host that reaches the address could read this host's topology; with --token-file, other hosts are served")
		}
		list[i] = full
	}
	return nil
}

// agentPort is the port of agents unless another is given.
const agentPort = "7411"

// listenAddress checks an address to listen at and adds what it lacks.
func listenAddress(a, host, port string) (string, error) {
	if a == "" {
		return "", errors.New("is empty")
	}
	h, p, err := net.SplitHostPort(a)
	if err != nil && port != "" {
		h, p, err = strings.Trim(a, "[]"), port, nil
	}
	switch _, wrong := strconv.ParseUint(p, 10, 16); {
	case err != nil || strings.ContainsAny(a, "/ "):
		return "", fmt.Errorf("%q: want host:port", a)
	case wrong != nil:
		return "", fmt.Errorf("%q: port %q: want 0 to 65535", a, p)
	}
	if h == "" {
		h = host
	}
	return net.JoinHostPort(h, p), nil
}

// Address reads the value of --peer: without a port, that of an agent is meant.
func Address(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		if host = strings.Trim(text, "[]"); strings.ContainsAny(host, " /") {
			return "", fmt.Errorf("--peer %q: want HOST:PORT", text)
		}
		port = agentPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
		return "", fmt.Errorf("--peer %q: want HOST:PORT", text)
	}
	return net.JoinHostPort(host, port), nil
}

// loopbackOnly says whether an address to listen at can be reached from this host
// only.
func loopbackOnly(address string) bool {
	host := address
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		host = strings.Trim(address[:i], "[]")
	}
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
