package document

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseKeepsPlacesAndText(t *testing.T) {
	roots, err := ParseXML([]byte("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"x.dtd\">\n" +
		"<!-- note -->\n<a k='1'>\n <b/>\n <c/>\n <b v=\"&lt;x&gt;\">0 1\n2 <!-- x --> 3</b>\n</a>\n<a/>\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(roots) != 2 || roots[0].Get("k") != "1" || len(roots[0].All("b")) != 2 {
		t.Fatalf("roots %+v", roots)
	}
	b := roots[0].All("b")[1]
	if b.Path() != "a/b[1]" || b.Line != 7 || strings.Join(strings.Fields(b.Text), " ") != "0 1 2 3" || b.Get("v") != "<x>" {
		t.Errorf("%s line %d text %q value %q", b.Path(), b.Line, b.Text, b.Get("v"))
	}
	if _, ok := b.Attr("none"); ok {
		t.Error("an attribute that is not there")
	}
}

func TestBadTextsSayWhere(t *testing.T) {
	many := strings.Builder{}
	for i := range MaxAttributes + 1 {
		fmt.Fprintf(&many, " a%d=''", i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "no XML element"},
		"plain text":  {"hello\nworld", "line 1: text outside of any element"},
		"cut":         {"<a>\n <b>\n", "line 3: the text ends inside <b> of line 2: truncated?"},
		"cut in tag":  {"<a>\n <b x=\"1", "line 2: the text ends inside <a> of line 1: truncated?"},
		"mismatch":    {"<a>\n</b>", "line 2: element <a> closed by </b>"},
		"entity":      {"<a>&bomb;</a>", "line 1: invalid character entity &bomb;"},
		"deep":        {strings.Repeat("<a>", MaxDepth+1), "nested deeper than 64"},
		"attributes":  {"<a" + many.String() + "/>", "more than 64 attributes"},
		"long value":  {"<a b='" + strings.Repeat("x", MaxValue+1) + "'/>", "attribute b of <a> is longer"},
		"long text":   {"<a>" + strings.Repeat("x", MaxValue+1) + "</a>", "text of <a> has 1048576 bytes or more"},
		"long name":   {"<" + strings.Repeat("x", MaxName+1) + "/>", "name is longer"},
		"many":        {"<a>" + strings.Repeat("<b/>", MaxElements) + "</a>", "more than 131072 elements"},
		"other coded": {`<?xml version="1.0" encoding="UTF-16"?><a/>`, `encoding "UTF-16" is not read`},
	} {
		_, err := ParseXML([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", name, err)
		}
	}
}

func TestFirst(t *testing.T) {
	for text, want := range map[string]string{
		"\ufeff<?xml version=\"1.0\"?>\n<!-- c --><topology version=\"2.0\"><obj": "topology",
		"<system": "", "text <a>": "", "": "", "{}": "", "<!-- cut": "",
	} {
		if got := FirstElement([]byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("<a b='1'><c/>t</a>"))
	f.Add([]byte("<a><b></a>"))
	f.Fuzz(func(t *testing.T, data []byte) {
		FirstElement(data)
		roots, err := ParseXML(data)
		if err == nil && len(roots) == 0 {
			t.Error("no roots and no error")
		}
	})
}
