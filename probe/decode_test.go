package probe_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/probe"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".probe.json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What a hostile or broken file says is refused in one line that says where.
func TestDecodeRefuses(t *testing.T) {
	good := string(file(t, "bad-cable"))
	edit := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the report has no %q", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	link := `"key":"n1 port:mlx5_0/1 down"`
	for name, tt := range map[string]struct{ data, want string }{
		"empty":                {"", "empty: not a probe report"},
		"no object":            {"[1]", `no "schema" key`},
		"another document":     {`{"schema":"topoctl.bench/v1"}`, `schema "topoctl.bench/v1" is not "topoctl.probe/v1"`},
		"a newer version":      {edit("topoctl.probe/v1", "topoctl.probe/v2"), `schema "topoctl.probe/v2" is newer than this program reads`},
		"something after it":   {good + "{}", "something follows the document"},
		"no UTF-8":             {edit("n3/mlx5_0", "n3/mlx\xff_0"), "is not UTF-8"},
		"a hidden character":   {edit(`"name":"n3"`, `"name":"n3\u202e"`), "cannot be printed"},
		"a line end":           {edit(`"name":"wire of n1/mlx5_0"`, `"name":"wire\nof n1"`), "cannot be printed"},
		"a long name":          {edit(`"name":"n3"`, `"name":"`+strings.Repeat("n", 600)+`"`), "600 bytes: at most 512"},
		"an unknown verdict":   {edit(`"verdict":"PASS"`, `"verdict":"FINE"`), `results[0]: verdict "FINE"`},
		"an unknown basis":     {edit(`"basis":"read"`, `"basis":"guessed"`), `basis "guessed"`},
		"a negative rate":      {edit(`"mean_bytes_per_sec":`, `"mean_bytes_per_sec":-`), "results[0]: bandwidth -"},
		"a rate of no machine": {edit(`"mean_bytes_per_sec":`, `"mean_bytes_per_sec":9999999`), "want 0 to"},
		"too many samples":     {edit(`"samples_bytes_per_sec":[`, `"samples_bytes_per_sec":[`+strings.Repeat("1,", 1<<16)), "samples: at most 65536"},
		"too many hosts":       {edit(`"hosts":[`, `"hosts":[`+strings.Repeat("{},", 1<<14)), "hosts[16384]: too many: at most 16384"},
		"a huge element":       {edit(`"why":"`, `"why":"`+strings.Repeat("x", 5<<20)), "at most 4194304 are read"},
		"two of one link":      {edit(`"key":"n1 pcie`, `"key":"n1 port:mlx5_0/1 down","x":"`), `two links have the key`},
		"a link of no host":    {edit(link+`,"host":"n1"`, link+`,"host":"n99"`), `which is not among the hosts (n1, n2`},
		"a way over no link":   {edit(`"path":["`, `"path":["x","`), `path: "x" is not among the links`},
		"a pair of no host":    {edit(`"from":{"host":"n1"`, `"from":{"host":"n99"`), `host "n99" is not among the hosts`},
		"an unknown limit":     {edit(`"limit_link":"`, `"limit_link":"x`), `limit_link: "x`},
		"two of one pair":      {edit(`"id":"port n1/mlx5_0>n2/mlx5_0 rdma"`, `"id":"port n1/mlx5_0>n3/mlx5_0 rdma"`), "two results have the id"},
		"blame for no pair":    {edit(`"pairs":["port`, `"pairs":["x","port`), `blame[0]: pair "x" is not among the results`},
		"blame on no link":     {edit(`"suspects":[{"kind":"link"`, `"suspects":[{"links":["x"],"kind":"link"`), ``},
		"latencies that fall":  {edit(`"p50":`, `"p50":9`), "are not in order"},
		"a list as object":     {edit(`"links":[`, `"links":{"a":[`), ""},
		"a number too large":   {edit(`"efficiency":`, `"efficiency":1e999,"x":`), "results[0]"},
		"nested without end":   {edit(`"mode":`, `"x":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`,"mode":`), "depth"},
	} {
		r, err := probe.Decode([]byte(tt.data))
		switch {
		case name == "blame on no link" && err == nil: // the last key counts
		case err == nil:
			t.Errorf("%s: accepted: %v", name, r.Summary)
		case !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "probe: ") || strings.Contains(err.Error(), "\n") || len(err.Error()) > 600:
			t.Errorf("%s: %.700v, want %q", name, err, tt.want)
		}
	}
}

// A file that ends early is no report, wherever it ends, and the error says where.
func TestTruncated(t *testing.T) {
	data := file(t, "bad-cable")
	for n := 0; n < len(data)-2; n += 1 + n/50 {
		_, err := probe.Decode(data[:n])
		if err == nil {
			t.Fatalf("%d of %d bytes are a report", n, len(data))
		}
		if n > 100 && !strings.Contains(err.Error(), fmt.Sprintf("ends in the middle, after %d bytes", n)) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	cut := data[:bytes.Index(data, []byte(`"id":"port n2/`))]
	if _, err := probe.Decode(cut); err == nil || !strings.Contains(err.Error(), "results[7]: ") {
		t.Errorf("%v: want the place", err)
	}
}

// Keys that are not known are a newer writer's, and order does not matter.
func TestDecodeLenient(t *testing.T) {
	data := file(t, "local-cpu")
	more := bytes.Replace(data, []byte(`"mode":`), []byte(`"later":{"a":[1,{}]},"mode":`), 1)
	more = bytes.Replace(more, []byte(`"verdict":"PASS"`), []byte(`"later":[],"verdict":"PASS"`), 1)
	moved := append([]byte(`{"later":1,`), data[1:]...)
	for name, d := range map[string][]byte{"unknown keys": more, "schema is not first": moved} {
		r, err := probe.Decode(d)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !bytes.Equal(encode(t, r), data) {
			t.Errorf("%s: the report differs", name)
		}
	}
}

// A report of an earlier version has no kinds of blame and no count of measured pairs.
func TestDecodeEarlier(t *testing.T) {
	data := file(t, "bad-cable")
	was := bytes.ReplaceAll(bytes.Replace(data, []byte(`"measured":0,`), nil, 1), []byte(`"kind":"fault",`), nil)
	if len(was) == len(data) {
		t.Fatal("nothing was left out")
	}
	r, err := probe.Decode(was)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Blame) == 0 || r.Blame[0].Kind != probe.Fault {
		t.Errorf("blame %+v", r.Blame)
	}
	if !bytes.Equal(encode(t, r), data) {
		t.Error("it is another report")
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"all-waived", "interrupted"} {
		f.Add(file(f, name))
	}
	f.Add([]byte(`{"schema":"topoctl.probe/v1","results":[{"id":"a","verdict":"PASS"}],"hosts":[{"name":""}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := probe.Decode(data)
		if err != nil {
			return
		}
		again := encode(t, r)
		back, err := probe.Decode(again)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%s", err, again)
		}
		if !bytes.Equal(encode(t, back), again) {
			t.Fatal("reading it back changes it")
		}
		for i := range r.Hosts {
			r.Overlay(r.Hosts[i].Name)
		}
	})
}
