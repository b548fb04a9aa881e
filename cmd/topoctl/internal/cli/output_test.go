package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/topoctl/topoctl/internal/report"
)

// tricky is a document whose texts look like other things in YAML.
const tricky = `{"schema":"x/v1","z":1,"a":{"yes":"yes","null":"null","tilde":"~","empty":"","time":"12:30:45",
"hex":"0x1f","bdf":"0000:18:00.0","exp":"1e3","colon":"a: b","hash":"# no","dash":"- x","lines":"one\ntwo\n",
"control":"\u001b[2J\u0000","quote":"\"'","unicode":"Größe \u2028 😀","key: odd":true,"?":false},
"n":null,"big":9007199254740993,"rate":1.5,"negative":-1,"list":[],"map":{},"numbers":[10,21],"nested":[[1,null],[{"b":1,"a":[2]}]]}`

func TestYAML(t *testing.T) {
	out, err := toYAML([]byte(tricky))
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal([]byte(tricky), &want); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	asFloat := cmp.FilterValues(func(a, b any) bool { return number64(a) && number64(b) }, cmp.Comparer(func(a, b any) bool {
		return toFloat(a) == toFloat(b)
	}))
	if diff := cmp.Diff(want, got, asFloat); diff != "" {
		t.Errorf("(-JSON +YAML):\n%s\n%s", diff, out)
	}
	if !strings.Contains(string(out), "big: 9007199254740993\n") {
		t.Errorf("a large number changed:\n%s", out)
	}
	if !strings.HasPrefix(string(out), "schema: x/v1\nz: 1\na:\n") {
		t.Errorf("the order of keys changed:\n%s", out)
	}
	if _, err := toYAML([]byte(`{"a":`)); err == nil {
		t.Error("broken JSON was accepted")
	}
}

func number64(v any) bool {
	switch v.(type) {
	case int, float64:
		return true
	}
	return false
}

func toFloat(v any) float64 {
	if i, ok := v.(int); ok {
		return float64(i)
	}
	return v.(float64)
}

func TestTable(t *testing.T) {
	tab := &report.Table{Head: []string{"KIND", "NAME", "MODEL"}}
	tab.Add("gpu", "GPU0", "")
	tab.Add("nvswitch", "x\x1b[2J", "A\tB")
	for want, got := range map[string]string{
		"KIND\tNAME\tMODEL\ngpu\tGPU0\t\nnvswitch\tx\\x1b[2J\tA\\tB\n":            tab.TSV(),
		"KIND      NAME      MODEL\ngpu       GPU0\nnvswitch  x\\x1b[2J  A\\tB\n": Streams{}.tableText(tab),
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// On a terminal the last column is wrapped where it stands; in a pipe lines are whole.
func TestWrapping(t *testing.T) {
	tab := &report.Table{Head: []string{"NAME", "MACHINE"}}
	tab.Add("a10-2nic", "two A10 and two RoCE NICs, one pair on each socket")
	want := "NAME      MACHINE\na10-2nic  two A10 and two RoCE NICs, one\n          pair on each socket\n"
	if diff := cmp.Diff(want, Streams{Width: 40}.tableText(tab)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	look := Look{Width: 20}
	if diff := cmp.Diff("a line that is\n  longer\n  one that is set on\nshort\n", look.WrapLines("a line that is longer\n  one that is set on\nshort\n")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	look.Width = 0
	if got := look.WrapLines("no limit at all\n"); got != "no limit at all\n" {
		t.Errorf("%q", got)
	}
}
