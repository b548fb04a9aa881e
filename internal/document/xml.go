package document

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits of what is read. Real files stay below a tenth of each.
const (
	MaxDepth      = 64      // nested elements
	MaxElements   = 1 << 17 // of the whole text
	MaxName       = 64      // bytes of an element's name
	MaxAttributes = 64      // of one element
	MaxValue      = 1 << 20 // bytes of one attribute or of one element's own text
)

// Element is one element with its attributes in order.
type Element struct {
	Name     string
	Attrs    []xml.Attr
	Children []*Element
	Text     string // its own character data, trimmed
	Line     int    // where it starts, from 1

	parent *Element
	nth    int // among the siblings of its name
}

// Path is the element's place, "system/cpu[0]/pci[2]".
func (e *Element) Path() string {
	if e.parent == nil {
		return e.Name
	}
	return fmt.Sprintf("%s/%s[%d]", e.parent.Path(), e.Name, e.nth)
}

// Attr is an attribute's value; ok is false if there is no such attribute.
func (e *Element) Attr(name string) (value string, ok bool) {
	for i := range e.Attrs {
		if e.Attrs[i].Name.Local == name {
			return e.Attrs[i].Value, true
		}
	}
	return "", false
}

// Get is an attribute's value, "" if there is no such attribute.
func (e *Element) Get(name string) string {
	v, _ := e.Attr(name)
	return v
}

// All lists the children of one name.
func (e *Element) All(name string) []*Element {
	var out []*Element
	for _, c := range e.Children {
		if c.Name == name {
			out = append(out, c)
		}
	}
	return out
}

// FirstElement gives the name of the first element in head, the first bytes of a
// text; "" if there is no element. The rest of head may be cut anywhere.
func FirstElement(head []byte) string {
	d := decoder(head)
	for {
		token, err := d.RawToken()
		if err != nil {
			return ""
		}
		switch token := token.(type) {
		case xml.StartElement:
			return token.Name.Local
		case xml.CharData:
			if len(bytes.Trim(token, " \t\r\n\ufeff")) > 0 {
				return "" // text before the first element: no XML
			}
		}
	}
}

func decoder(data []byte) *xml.Decoder {
	d := xml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))
	d.CharsetReader = func(charset string, r io.Reader) (io.Reader, error) {
		switch strings.ToLower(charset) {
		case "us-ascii", "ascii":
			return r, nil
		}
		return nil, fmt.Errorf("encoding %q is not read: want UTF-8", charset)
	}
	return d
}

// ParseXML reads the whole text and gives its root elements: one, or several for
// a fragment. Errors name the line.
func ParseXML(data []byte) ([]*Element, error) {
	p := xmlParser{d: decoder(data)}
	for {
		line, _ := p.d.InputPos()
		token, err := p.d.Token()
		if errors.Is(err, io.EOF) && len(p.open) == 0 {
			break
		}
		if err != nil {
			return nil, p.describe(err, line)
		}
		if err := p.take(token, line); err != nil {
			return nil, err
		}
	}
	if len(p.roots) == 0 {
		return nil, errors.New("no XML element in it")
	}
	return p.roots, nil
}

type xmlParser struct {
	d     *xml.Decoder
	roots []*Element
	open  []*Element
	seen  []map[string]int // per open element: children so far by name
	count int
}

func (p *xmlParser) take(token xml.Token, line int) error {
	switch token := token.(type) {
	case xml.StartElement:
		return p.start(token.Copy(), line)
	case xml.EndElement:
		p.open = p.open[:len(p.open)-1]
		p.seen = p.seen[:len(p.seen)-1]
	case xml.CharData:
		text := bytes.TrimSpace(token)
		if len(text) == 0 {
			return nil
		}
		if len(p.open) == 0 {
			return fmt.Errorf("line %d: text outside of any element", line)
		}
		e := p.open[len(p.open)-1]
		if len(e.Text)+len(text) >= MaxValue {
			return fmt.Errorf("line %d: text of <%s> has %d bytes or more", line, e.Name, MaxValue)
		}
		if e.Text != "" {
			e.Text += " " // a comment stood between
		}
		e.Text += string(text)
	}
	return nil
}

func (p *xmlParser) start(token xml.StartElement, line int) error {
	e := &Element{Name: token.Name.Local, Attrs: token.Attr, Line: line}
	p.count++
	switch {
	case p.count > MaxElements:
		return fmt.Errorf("line %d: more than %d elements", line, MaxElements)
	case len(p.open) >= MaxDepth:
		return fmt.Errorf("line %d: elements nested deeper than %d", line, MaxDepth)
	case len(e.Name) > MaxName:
		return fmt.Errorf("line %d: an element's name is longer than %d bytes", line, MaxName)
	case len(e.Attrs) > MaxAttributes:
		return fmt.Errorf("line %d: <%s> has more than %d attributes", line, e.Name, MaxAttributes)
	}
	for _, a := range e.Attrs {
		if len(a.Value) > MaxValue {
			return fmt.Errorf("line %d: attribute %s of <%s> is longer than %d bytes", line, a.Name.Local, e.Name, MaxValue)
		}
	}
	if len(p.open) == 0 {
		p.roots = append(p.roots, e)
	} else {
		e.parent = p.open[len(p.open)-1]
		seen := p.seen[len(p.seen)-1]
		e.nth = seen[e.Name]
		seen[e.Name]++
		e.parent.Children = append(e.parent.Children, e)
	}
	p.open = append(p.open, e)
	p.seen = append(p.seen, map[string]int{})
	return nil
}

// describe makes one line of an XML error. A text that ends inside an element
// was most likely cut.
func (p *xmlParser) describe(err error, line int) error {
	var syntax *xml.SyntaxError
	if errors.As(err, &syntax) {
		line = syntax.Line
		if syntax.Msg == "unexpected EOF" && len(p.open) > 0 {
			e := p.open[len(p.open)-1]
			return fmt.Errorf("line %d: the text ends inside <%s> of line %d: truncated?", line, e.Name, e.Line)
		}
		return fmt.Errorf("line %d: %s", line, syntax.Msg)
	}
	return fmt.Errorf("line %d: %w", line, err)
}
