package schematest_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/topoctl/topoctl/discover/topo"
	"github.com/topoctl/topoctl/testkit/schematest"
)

type inner struct {
	Share float64  `json:"share"`
	Known []string `json:"known"`
}

type mode string

type document struct {
	Schema string `json:"schema"`
	*inner
	Place inner             `json:"place"`
	Count *int              `json:"count"`
	Mode  mode              `json:"mode"`
	Class topo.Class        `json:"class,omitempty"`
	At    netip.Addr        `json:"at,omitzero"`
	Names map[string]string `json:"names"`
	Large uint64            `json:"large,string"`
	Left  chan int          `json:"-"`
}

// What is written always is required, embedded fields are the document's own,
// and null is allowed where a pointer or a named list can give it.
const want = `{
 "$id": "urn:topoctl:test:v1",
 "$schema": "https://json-schema.org/draft/2020-12/schema",
 "properties": {
  "at": {"type": "string"},
  "class": {"pattern": "^(X|NV[0-9]+|XGMI|C2C|PIX|PXB|PHB|NODE|SYS)$", "type": ["string", "null"]},
  "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
  "known": {"anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}]},
  "large": {"pattern": "^-?[0-9]+$", "type": "string"},
  "mode": {"enum": ["on", "off"]},
  "names": {"additionalProperties": {"type": "string"}, "type": "object"},
  "place": {
   "properties": {
    "known": {"anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}]},
    "share": {"type": "number"}
   },
   "required": ["share", "known"], "type": "object"
  },
  "schema": {"const": "topoctl.test/v1"},
  "share": {"type": "number"}
 },
 "required": ["schema", "share", "known", "place", "count", "mode", "names", "large"],
 "title": "topoctl.test/v1", "type": "object"
}`

func generated() schematest.Object {
	g := schematest.Generator{
		Types:    map[reflect.Type]schematest.Object{reflect.TypeFor[mode](): {"enum": []string{"on", "off"}}},
		Nullable: []string{"inner.Known"},
	}
	return g.Document("topoctl.test/v1", reflect.TypeFor[document]())
}

func TestDocument(t *testing.T) {
	data, err := json.Marshal(generated())
	if err != nil {
		t.Fatal(err)
	}
	var got, wanted any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A published file is the schema to the letter, and takes documents only.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.v1.schema.json")
	published, err := json.MarshalIndent(generated(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(published, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	schematest.Compare(t, path, generated())
	schema := schematest.Open(t, path)
	n := 1
	good, err := json.Marshal(document{Schema: "topoctl.test/v1", inner: &inner{}, Place: inner{Known: []string{"a"}}, Count: &n, Mode: "on", Names: map[string]string{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(good); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "{}", `{"schema":"topoctl.test/v2"}`, string(good) + "{}"} {
		if schema.Validate([]byte(bad)) == nil {
			t.Errorf("%q is valid", bad)
		}
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
	other := &failing{TB: t}
	if schematest.Compare(other, path, generated()); !other.failed {
		t.Error("a file that differs is taken")
	}
}

// failing notes that a test would fail.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Errorf(string, ...any) { f.failed = true }

// What cannot be described is never described as something else.
func TestOfPanics(t *testing.T) {
	var g schematest.Generator
	for _, typ := range []reflect.Type{
		reflect.TypeFor[any](), reflect.TypeFor[chan int](), reflect.TypeFor[struct{ NoName int }](),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v is described as %v", typ, g.Of(typ))
				}
			}()
			g.Of(typ)
		}()
	}
}
