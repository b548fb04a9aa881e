package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestWriter(t *testing.T) {
	w := NewWriter()
	w.Field("schema", "x/v1")
	w.Field("map", map[string]int{"b": 2, "a": 1})
	w.List("items")
	w.Item([]int{1, 2})
	w.ItemWith(struct{}{}, "facts", 0)
	w.ItemWith(map[string]string{"<": ">"}, "facts", 1)
	w.End()
	w.Object("derived")
	w.Field("rules", "v2")
	WriteList(w, "rows", [][]int{{1}, {2, 3}})
	w.End()
	WriteList[int](w, "none", nil)
	got, err := w.Bytes()
	want := `{"schema":"x/v1",
"map":{"a":1,"b":2},
"items":[
[1,2],
{"facts":0},
{"<":">","facts":1}
],
"derived":{"rules":"v2",
"rows":[
[1],
[2,3]
]},
"none":[]
}
`
	if err != nil || string(got) != want || !json.Valid(got) {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestWriterErrors(t *testing.T) {
	w := NewWriter()
	WriteList(w, "values", []float64{1, math.NaN()})
	w.Field("more", math.Inf(1))
	var unsupported *json.UnsupportedValueError
	if got, err := w.Bytes(); !errors.As(err, &unsupported) || unsupported.Str != "NaN" || got != nil {
		t.Error("want the first error:", err)
	}
	w = NewWriter()
	w.List("values")
	w.ItemWith(1, "facts", 2)
	w.End()
	if _, err := w.Bytes(); err == nil || !strings.Contains(err.Error(), "int is no object") {
		t.Error(err)
	}
	for what, do := range map[string]func(){"End": func() { NewWriter().End() }, "Bytes": func() {
		w := NewWriter()
		w.List("open")
		_, _ = w.Bytes()
	}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s does not panic", what)
				}
			}()
			do()
		}()
	}
}

func TestLine(t *testing.T) {
	if got, err := Line("x16 -> x8"); err != nil || string(got) != "\"x16 -> x8\"\n" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := Line(math.NaN()); err == nil {
		t.Error("NaN")
	}
}

func TestLayout(t *testing.T) {
	for in, want := range map[string]string{
		`{"schema":"x/v1","rows":[{"a":[1,2]},[3]],"none":[],"map":{"k":[1,2]},"<":"&"}` + "\n": `{
"schema":"x/v1",
"rows":[
{"a":[1,2]},
[3]
],
"none":[],
"map":{"k":[1,2]},
"<":"&"
}
`,
		" { \"a\\u0001\" : 1.50 , \"b\" : [ 1 , \"x\" ] , \"c\":12345678901234567890 } ": "{\n\"a\\u0001\":1.50,\n\"b\":[\n1,\n\"x\"\n],\n\"c\":12345678901234567890\n}\n",
		"{}": "{\n}\n",
	} {
		if got, err := Layout([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", in, err, got)
		}
	}
	for _, bad := range []string{"", "1", "[1]", `{"a":[1`, `{"a":1`, `{"a":1}{"b":2}`, `{"a":1}]`, `{1:2}`, `{"a":}`} {
		if got, err := Layout([]byte(bad)); err == nil || !strings.HasPrefix(err.Error(), "lay out JSON: ") {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

// row refuses to be negative.
type row struct {
	N int `json:"n"`
}

func (r *row) check() error {
	if r.N < 0 {
		return errors.New("n is negative")
	}
	return nil
}

// document is read within limits of 2 rows, 12 bytes each, and 2 keys in meta.
type document struct {
	Name string
	Meta map[string]string
	Rows []row
}

func read(data string) (*document, error) {
	d := &document{}
	r := NewReader([]byte(data))
	err := r.Object(0, func(key string) error {
		switch key {
		case "name":
			return r.Value(&d.Name, 10)
		case "meta":
			d.Meta = map[string]string{}
			return r.Object(2, func(key string) error {
				var v string
				err := r.Value(&v, 0)
				d.Meta[key] = v
				return err
			})
		case "rows":
			return ReadList(r, &d.Rows, 2, 12, (*row).check)
		}
		return r.Skip()
	})
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, r.Locate(err)
	}
	return d, nil
}

func TestReader(t *testing.T) {
	got, err := read(`{"name":"x","unknown":[[{}]],"meta":{"a":"1","b":"2"},"rows":[{"n":1},{"n":2}]}` + "\n")
	want := &document{"x", map[string]string{"a": "1", "b": "2"}, []row{{1}, {2}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v", got, err)
	}
	if got, err := read(`{"rows":null}`); err != nil || got.Rows != nil {
		t.Error(got, err)
	}
	for in, want := range map[string]string{
		`[]`:                              "line 1: want an object",
		``:                                "the document ends in the middle, after 0 bytes (line 1): truncated?",
		"{\"name\":\n\"12345678901\"}":    "line 2: name: 13 bytes: at most 10 are read",
		`{"name":1}`:                      "line 1: name: json: cannot unmarshal number into Go value of type string",
		`{"rows":{}}`:                     "line 1: rows: want a list",
		`{"rows":[{},{},{}]}`:             "line 1: rows[2]: too many: at most 2 are read",
		"{\"rows\":[\n{},\n{\"n\":-1}]}":  "line 3: rows[1]: n is negative",
		`{"rows":[{"n":10000000}]}`:       "line 1: rows[0]: 14 bytes: at most 12 are read",
		`{"meta":{"a":"","b":"","c":""}}`: "line 1: meta.b: too many: more than 2 keys",
		`{"meta":{"a":1}}`:                "line 1: meta.a: json: cannot unmarshal number into Go value of type string",
		`{"rows":[{"n":1},`:               "rows[1]: the document ends in the middle, after 17 bytes (line 1): truncated?",
		"{\"name\":\"x\"\n":               "name: the document ends in the middle, after 12 bytes (line 2): truncated?",
		`{"name":"x"}}`:                   "line 1: something follows the document",
		"{\n\"name\":x}":                  "line 2: name: invalid character 'x' looking for beginning of value",
	} {
		if _, err := read(in); err == nil || err.Error() != want {
			t.Errorf("%s:\n%v\n%s", in, err, want)
		}
	}
	if _, err := read(`{"rows":[{},{},{}]}`); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
}

func TestLocate(t *testing.T) {
	for in, want := range map[string]string{
		"": "the document ends in the middle, after 0 bytes (line 1): truncated?", "{\n\"a\":\n": "the document ends in the middle, after 7 bytes (line 3): truncated?",
		"{\n,}": "line 2: invalid character ',' looking for beginning of object key string", "[]": "json: cannot unmarshal array into Go value of type map[string]int",
	} {
		var v map[string]int
		if err := Locate([]byte(in), json.Unmarshal([]byte(in), &v)); err == nil || err.Error() != want {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestLimits(t *testing.T) {
	l := Limits{Bytes: 100, Text: 5, Elements: 4, Depth: 3, CheapElements: 6, CheapLists: map[string]bool{"path": true}, Opaque: map[string]bool{"raw": true}}
	for in, want := range map[string]string{
		strings.Repeat(" ", 101):                "101 bytes: at most 100 are read",
		`["abcd","x\"yz"]`:                      "a text of 6 bytes: at most 5 are read",
		`["abcde`:                               "a text of 6 bytes: at most 5 are read",
		`[[[[`:                                  "lists and objects in each other: at most 3 deep are read",
		`[{},{},{},{},{}]`:                      "more than 4 elements of lists, which are not read",
		`[[],[],[]]`:                            "more than 4 elements of lists, which are not read",
		`}`:                                     "a closing bracket too many",
		`{"path" : [1,2,3,4,5,6,7]}`:            "more than 6 elements of lists of numbers and texts, which are not read",
		`["path",[1,2,3,4,5,6]]`:                "more than 4 elements of lists, which are not read",
		`{"raw":{"x":[1,2,3]},"y":[1,2,3,4,5]}`: "more than 4 elements of lists, which are not read",
		`{"raw":{"x":[1,2,3,4,5,6,7]},"y":[1,2]}`: "",
		`{"path":[1,2,3,4,5,6],"y":[1,2,3,4]}`:    "",
		`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}`:   "",
		`["[[[[","]","\\",",,,,"]`:                "",
		`[` + "\"\\":                              "",
		`{"y":{"raw":[1,2,3,4,5]},"z":[1,2,3]}`:   "",
	} {
		got := ""
		if err := l.Check([]byte(in)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
	var none Limits
	if err := none.Check([]byte(strings.Repeat("[", 1000) + strings.Repeat("1,", 1000))); err != nil {
		t.Error(err)
	}
}

// count is how many elements the lists of a decoded value have, an empty list being one, and
// how deep it is.
func count(v any) (elements, depth int) {
	add := func(child any) {
		n, d := count(child)
		elements, depth = elements+n, max(depth, d)
	}
	switch v := v.(type) {
	case []any:
		elements = max(1, len(v))
		for _, child := range v {
			add(child)
		}
	case map[string]any:
		for _, child := range v {
			add(child)
		}
	default:
		return 0, 0
	}
	return elements, depth + 1
}

func FuzzLimits(f *testing.F) {
	for _, s := range []string{`[[1,2],{"a":[]}]`, `["]",",\""]`, `[[[[[[`, `{"a":[1,2,3,4,5,6,7,8,9]}`} {
		f.Add([]byte(s))
	}
	l := Limits{Bytes: 1 << 12, Text: 16, Elements: 8, Depth: 4}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v any
		if l.Check(data) != nil || json.Unmarshal(data, &v) != nil {
			return
		}
		if elements, depth := count(v); elements > l.Elements || depth > l.Depth {
			t.Errorf("%q has %d elements and is %d deep", data, elements, depth)
		}
	})
}

func FuzzReader(f *testing.F) {
	for _, s := range []string{`{"name":"x","meta":{"a":"b"},"rows":[{"n":1}]}`, `{"rows":[{},{},{}]}`, `{"rows":null,"x":[`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		d, err := read(data)
		if err != nil {
			return
		}
		if len(d.Rows) > 2 || len(d.Meta) > 2 || len(d.Name) > 10*3 || !json.Valid([]byte(data)) {
			t.Errorf("%q is read as %+v", data, d)
		}
	})
}

func FuzzLayout(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":2}],"c":{"d":[3]}}`, `{"a":"\u0000","a":1e400}`, `{ "x" : [ ] }`, `{"a":1}x`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := Layout(data)
		object := json.Valid(data) && bytes.TrimLeft(data, " \t\r\n")[0] == '{'
		if (err == nil) != object {
			t.Fatalf("%q: %v", data, err)
		}
		if err != nil {
			return
		}
		var before, after bytes.Buffer
		if err := errors.Join(json.Compact(&before, data), json.Compact(&after, out)); err != nil || before.String() != after.String() {
			t.Errorf("%q became %q, %v", data, out, err)
		}
		if again, err := Layout(out); err != nil || !bytes.Equal(again, out) {
			t.Errorf("%q laid out again is %q, %v", out, again, err)
		}
	})
}

// What a document says is the same afterwards, and no terminal obeys it.
func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"a":"Gerät €"}`, `{"a":"Gerät €"}`},
		{"\"\u009b31m\x7f\u0085x\"", `"\u009b31m\u007f\u0085x"`},
		{"\"\u00a0\u0080\"", `"\u00a0\u0080"`},
		{"\"a\u202eb\u200b\U000e0001\"", `"a\u202eb\u200b\udb40\udc01"`},
		{"\xc2", "\xc2"},
		{"", ""},
	} {
		if got := string(Printable([]byte(tt.in))); got != tt.want {
			t.Errorf("Printable(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
