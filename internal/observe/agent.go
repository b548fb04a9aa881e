package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/topoctl/topoctl/internal/pkgerr"
	"github.com/topoctl/topoctl/internal/record"
)

// What an agent may answer at most.
const (
	maxAnswer = 8 << 20
	maxHeader = 64 << 10
)

// AgentURL is the address of an agent as Options want it, from what a user types:
// "http://n1:9411", "n1:9411". It has no path, for the pages that agents have are known.
func AgentURL(text string) (string, error) {
	bad := func(why string) (string, error) {
		return "", fmt.Errorf("agent %.80q: %s: want http://HOST:PORT", text, why)
	}
	full := text
	if !strings.Contains(text, "://") {
		full = "http://" + text
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return bad("no URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("not http or https")
	case u.Hostname() == "":
		return bad("no host")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return bad("a path or a query")
	}
	u.Path = ""
	return u.String(), nil
}

// AgentClient asks agents: without redirects, without unpacking what is small on the wire and
// large in memory. given is nil but for tests.
func AgentClient(given *http.Client) *http.Client {
	c := http.Client{Transport: &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: maxHeader, IdleConnTimeout: time.Minute}}
	if given != nil {
		c = *given
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// agent is the engine of one agent as a source. Its name has no password in it.
func (f *Feed) agent(address string, late time.Duration) *source {
	name := address
	u, err := url.Parse(address)
	if err == nil {
		name = u.Redacted()
	}
	ask := func(ctx context.Context) (*record.Record, error) {
		if err != nil {
			return nil, err
		}
		e, err := f.engine(ctx, u.JoinPath("v1", "engine").String())
		if err != nil {
			return nil, err
		}
		return &record.Record{Engine: e}, nil
	}
	return &source{name: record.AgentPrefix + oneLine(name), every: f.o.Interval, lateAfter: late, ask: ask}
}

// engine asks an agent for its engine.
func (f *Feed) engine(ctx context.Context, page string) (*record.Engine, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, agentTimeout, fmt.Errorf("no answer within %s", agentTimeout))
	defer cancel()
	data, err := GetPage(ctx, f.client, page)
	if err != nil {
		return nil, err
	}
	e, err := record.DecodeEngine(data)
	if err != nil {
		return nil, pkgerr.Plain(err)
	}
	return e, nil
}

// GetPage asks an agent for one of its pages. Where ctx ends it, its cause is the error. The error does
// not name the address, which stands beside it already.
func GetPage(ctx context.Context, client *http.Client, page string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, withoutAddress(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, fmt.Errorf("it redirects (%s): redirects are not followed", resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers %s: is this the HTTP address of an agent?", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, withoutAddress(ctx, err)
	}
	if len(data) > maxAnswer {
		return nil, fmt.Errorf("its answer is longer than %d MiB", maxAnswer>>20)
	}
	return data, nil
}

// withoutAddress is an error of a request without the address, which stands beside it already.
func withoutAddress(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var lookup *net.DNSError
	var call *os.SyscallError
	var request *url.Error
	switch {
	case errors.As(err, &lookup):
		return lookup
	case errors.As(err, &call):
		return call.Err
	case errors.As(err, &request):
		return request.Err
	}
	return err
}
