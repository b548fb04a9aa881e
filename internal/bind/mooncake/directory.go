package mooncake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	dialTimeout     = 5 * time.Second
	httpTimeout     = 5 * time.Second // of one request
	withdrawTimeout = 3 * time.Second
)

// found is where a segment is and what it offers.
type found struct {
	address string // of its handshake port
	*descriptor
}

// directory finds descriptors by the names of segments: on an HTTP server of keys and values or, without
// one (P2P), by asking the segments, whose names are addresses then.
type directory struct {
	url    string // "" with P2P
	client *http.Client
}

func newDirectory(metadata string) (*directory, error) {
	if metadata == "" || metadata == P2P {
		return &directory{}, nil
	}
	u, err := url.Parse(metadata)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errorf("metadata %q: want %s or http://host:port/metadata", metadata, P2P)
	}
	return &directory{url: metadata, client: &http.Client{
		Timeout:       httpTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true},
	}}, nil
}

// p2p says that names are addresses.
func (dir *directory) p2p() bool { return dir.url == "" }

// exchange sends a frame to a handshake port, and gives what comes back.
func exchange(ctx context.Context, address string, kind frameType, body []byte, limit int) ([]byte, error) {
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPeer, err)
	}
	defer func() { _ = c.Close() }() // at once: a stock peer serves no one else before
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := c.Write(encodeFrame(kind, body)); err != nil {
		return nil, ended(ctx, err)
	}
	answered, reply, err := readFrame(c, limit)
	if err != nil {
		return nil, ended(ctx, err)
	}
	if answered != kind {
		return nil, fmt.Errorf("%w: an answer of type %d to type %d", ErrMalformed, answered, kind)
	}
	return reply, nil
}

// ended says that a call was over for its context's reason, where that is so.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if closedByPeer(err) {
		return fmt.Errorf("%w: it closed the connection", ErrMalformed)
	}
	return err
}

func descriptorKey(name string) string {
	if strings.Contains(name, "/") {
		return "mooncake/" + name
	}
	return "mooncake/ram/" + name
}

func rpcMetaKey(name string) string { return "mooncake/rpc_meta/" + name }

func (dir *directory) find(ctx context.Context, name string) (*found, error) {
	if dir.p2p() {
		// Peers send their own descriptor, and read no other: what is here is not told.
		body, err := exchange(ctx, name, frameMetadata, []byte("{}\n"), maxReply)
		if err != nil {
			return nil, err
		}
		d, err := parseDescriptor(body)
		return &found{name, d}, err
	}
	body, err := dir.request(ctx, http.MethodGet, descriptorKey(name), nil)
	if err != nil {
		return nil, err
	}
	d, err := parseDescriptor(body)
	if err != nil {
		return nil, err
	}
	if body, err = dir.request(ctx, http.MethodGet, rpcMetaKey(name), nil); err != nil {
		return nil, err
	}
	m, err := parseRPCMeta(body)
	if err != nil {
		return nil, err
	}
	return &found{m.address(), d}, nil
}

// publish makes this process known. It takes the place of what an earlier process of the same name has
// left: servers refuse a second rpc_meta.
func (dir *directory) publish(ctx context.Context, own *descriptor, at rpcMeta) error {
	if dir.p2p() {
		return nil
	}
	key := rpcMetaKey(own.Name)
	_, err := dir.request(ctx, http.MethodPut, key, encode(at))
	var answer *statusError
	if errors.As(err, &answer) && answer.code == http.StatusBadRequest {
		if _, err = dir.request(ctx, http.MethodDelete, key, nil); err == nil {
			_, err = dir.request(ctx, http.MethodPut, key, encode(at))
		}
	}
	if err != nil {
		return err
	}
	return dir.update(ctx, func() *descriptor { return own })
}

// update tells what has changed.
func (dir *directory) update(ctx context.Context, own func() *descriptor) error {
	if dir.p2p() {
		return nil
	}
	d := own()
	_, err := dir.request(ctx, http.MethodPut, descriptorKey(d.Name), encode(d))
	return err
}

// withdraw takes back what publish told.
func (dir *directory) withdraw(ctx context.Context, name string) error {
	if dir.p2p() {
		return nil
	}
	_, err := dir.request(ctx, http.MethodDelete, rpcMetaKey(name), nil)
	_, err2 := dir.request(ctx, http.MethodDelete, descriptorKey(name), nil)
	return errors.Join(err, err2)
}

// statusError is an answer that is not 200.
type statusError struct {
	code int
	key  string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the metadata server answers %d %s for %q", e.code, http.StatusText(e.code), e.key)
}

// Is: a key that is not there is a peer that is not there.
func (e *statusError) Is(target error) bool {
	return target == ErrNoPeer && e.code == http.StatusNotFound
}

func (dir *directory) request(ctx context.Context, method, key string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, dir.url+"?key="+url.QueryEscape(key), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := dir.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	out, err := io.ReadAll(io.LimitReader(answer.Body, maxReply+1))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode != http.StatusOK:
		return nil, &statusError{answer.StatusCode, key}
	case len(out) > maxReply:
		return nil, fmt.Errorf("%w: more than %d bytes for %q", ErrMalformed, maxReply, key)
	}
	return out, nil
}
