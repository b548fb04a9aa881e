package etcd

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Whatever is in etcd, what is read of it is a record that an engine could have published, under its own name.
func FuzzRecord(f *testing.F) {
	f.Add("n1", []byte(`{"name":"n1","epoch":"7","addresses":["10.0.0.1:7411"],"serves":["probe"]}`))
	f.Add("a%2Fb", []byte(`{"name":"a/b","epoch":"18446744073709551615","addresses":["[2001:db8::1]:1"]}`))
	f.Add("%zz", []byte(`{}`))
	k := newKeys(defaultPrefix)
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		r, err := k.decode(&mvccpb.KeyValue{Key: []byte(k.prefix + name), Value: value})
		if err != nil {
			return
		}
		if r.Check() != nil || k.of(r.Name) != k.prefix+name {
			t.Errorf("%q: %+v", name, r)
		}
		again, err := encode(r)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		if same, err := decode([]byte(again)); err != nil || !same.Equal(&r) {
			t.Errorf("%s: %+v, %v", again, same, err)
		}
	})
}

// URLs with a secret are refused without repeating it, and what is taken can be opened.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"etcd://h1,h2:2379/a/b?ttl=30s", "etcd://[::1]:2379", "etcd:///p", "etcd://u:p@h", "etcd://h?tls=true&cacert=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := ParseURL(text, func(string) string { return "" })
		if err != nil {
			if host, _, _ := strings.Cut(strings.TrimPrefix(text, "etcd://"), "/"); strings.Contains(host, ":secretsecret@") && strings.Contains(err.Error(), "secretsecret") {
				t.Errorf("%v", err)
			}
			return
		}
		if err := o.complete(); err != nil || len(o.Endpoints) == 0 || o.TTL < minTTL {
			t.Errorf("%q: %+v, %v", text, o, err)
		}
	})
}

func TestParseURL(t *testing.T) {
	env := map[string]string{}
	get := func(k string) string { return env[k] }
	for _, tt := range []struct {
		url, env, endpoints, prefix, user, err string
	}{
		{url: "etcd://h1,h2:2380/cluster/a", endpoints: "http://h1:2379 http://h2:2380", prefix: "/cluster/a"},
		{url: "etcd://[::1]/", endpoints: "http://[::1]:2379", prefix: defaultPrefix},
		{url: "etcd://", env: "ETCDCTL_ENDPOINTS=h1:1,https://h2:2", endpoints: "https://h1:1 https://h2:2", prefix: defaultPrefix},
		{url: "etcd://", env: "ETCDCTL_ENDPOINTS=http://h1:1,https://h2:2", err: "want TLS for all endpoints, or for none"},
		{url: "etcd://", env: "ETCDCTL_ENDPOINTS=https://h1:1,https://h2:2 ETCDCTL_USER=u:p:q", endpoints: "https://h1:1 https://h2:2", prefix: defaultPrefix, user: "u/p:q"},
		{url: "etcd:///x", env: "ETCDCTL_ENDPOINTS=h1 ETCDCTL_USER=u ETCDCTL_PASSWORD=p", endpoints: "http://h1:2379", prefix: "/x", user: "u/p"},
		{url: "etcd://h1?tls=true", endpoints: "https://h1:2379", prefix: defaultPrefix},
		{url: "etcd://h1", env: "ETCDCTL_INSECURE_SKIP_TLS_VERIFY=true", endpoints: "https://h1:2379", prefix: defaultPrefix},
		{url: "etcd://", err: "no endpoint"},
		{url: "etcd://u:hush@h1", err: "a user in the URL"},
		{url: "etcd://h1?user=u", err: `"user" in the URL`},
		{url: "etcd://h1?ttl=5s&ttl=6s", err: `"ttl" in the URL`},
		{url: "etcd://h1?ttl=2s", err: "TTL of 2s: want 5s to 1h0m0s"},
		{url: "etcd://h1?ttl=soon", err: "want a time such as 15s"},
		{url: "etcd://h1?cert=x", err: "cert and key come together"},
		{url: "etcd://h1?cacert=/nonexistent", err: "no such file"},
		{url: "etcd://h1?user-file=/nonexistent", err: "no such file"},
		{url: "etcd://h1:0", err: "want host or host:port"},
		{url: "etcd://h1/a//b", err: "prefix"},
		{url: "http://h1", err: "want etcd://"},
	} {
		clear(env)
		for _, pair := range strings.Fields(tt.env) {
			k, v, _ := strings.Cut(pair, "=")
			env[k] = v
		}
		o, err := ParseURL(tt.url, get)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s %s: %v: want %q", tt.url, tt.env, err, tt.err)
			}
			continue
		}
		if err == nil {
			err = o.complete()
		}
		user := ""
		if o.Username != "" {
			user = o.Username + "/" + o.Password
		}
		if err != nil || strings.Join(o.Endpoints, " ") != tt.endpoints || o.Prefix != tt.prefix || user != tt.user {
			t.Errorf("%s %s: %q, %s, %s, %v", tt.url, tt.env, o.Endpoints, o.Prefix, user, err)
		}
	}
}
