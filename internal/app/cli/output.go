package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/topoctl/topoctl/internal/app/draw"
)

// The output formats; each command takes some of them.
const (
	formatJSON     = "json"
	formatYAML     = "yaml"
	formatTable    = "table"
	formatCSV      = "csv"
	formatMarkdown = "md"
	formatText     = "text"
)

// write puts all of data on w.
func write(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// document is JSON as every command gives it, a document or lines: nothing in it is obeyed
// by a terminal, whatever a host or a peer is called.
func document(data []byte, err error) ([]byte, error) { return draw.JSON(data), err }

// jsonLine is a value as a line of JSON with its end.
func jsonLine(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // "x16 -> x8" stays legible
	err := enc.Encode(v)
	return document(buf.Bytes(), err)
}

// laidOut is a value as a document that layout has broken into lines.
func laidOut(v any) ([]byte, error) {
	data, err := jsonLine(v)
	if err != nil {
		return nil, err
	}
	return layout(data)
}

// printJSON prints a value as a document.
func printJSON(w io.Writer, v any) error {
	data, err := laidOut(v)
	if err != nil {
		return err
	}
	return write(w, data)
}

// layout breaks a JSON object into lines: a key a line, and for lists an
// element a line, so that people and diff can read it.
func layout(data []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var out bytes.Buffer
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("lay out JSON: %w", err)
	}
	out.WriteString("{")
	for first := true; dec.More(); first = false {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("lay out JSON: %w", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("lay out JSON: %w", err)
		}
		if !first {
			out.WriteByte(',')
		}
		name, err := jsonLine(key)
		if err != nil {
			return nil, fmt.Errorf("lay out JSON: %w", err)
		}
		fmt.Fprintf(&out, "\n%s:", bytes.TrimSpace(name))
		if err := layoutList(&out, value); err != nil {
			return nil, err
		}
	}
	out.WriteString("\n}\n")
	return out.Bytes(), nil
}

// layoutList writes a list with an element a line, anything else as it is.
func layoutList(out *bytes.Buffer, value json.RawMessage) error {
	if value[0] != '[' {
		out.Write(value)
		return nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(value, &elements); err != nil {
		return fmt.Errorf("lay out JSON: %w", err)
	}
	out.WriteByte('[')
	for i, e := range elements {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		out.Write(e)
	}
	if len(elements) > 0 {
		out.WriteByte('\n')
	}
	out.WriteByte(']')
	return nil
}

// toYAML turns a JSON document into YAML and keeps the order of its keys.
func toYAML(data []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	node, err := yamlNode(dec)
	if err != nil {
		return nil, fmt.Errorf("JSON to YAML: %w", err)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(node); err != nil {
		return nil, fmt.Errorf("JSON to YAML: %w", err)
	}
	return out.Bytes(), nil
}

// yamlNode reads one JSON value.
func yamlNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	scalar := func(tag, value string) (*yaml.Node, error) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}, nil
	}
	switch v := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if v == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		flat := v == '['
		for dec.More() {
			child, err := yamlNode(dec)
			if err != nil {
				return nil, err
			}
			flat = flat && child.Kind == yaml.ScalarNode
			n.Content = append(n.Content, child)
		}
		if flat {
			n.Style = yaml.FlowStyle // [10, 21] on one line
		}
		_, err := dec.Token() // the closing bracket
		return n, err
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return scalar("!!float", v.String())
		}
		return scalar("!!int", v.String())
	case bool:
		return scalar("!!bool", fmt.Sprint(v))
	case string:
		return scalar("!!str", v)
	}
	return scalar("!!null", "null")
}

// table prints rows in columns for people; for programs that read a pipe it
// leaves the head out and separates by tabs.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c)
	}
	t.rows = append(t.rows, cells)
}

func (t *table) print(s Streams) error {
	var out bytes.Buffer
	if !s.OutTTY {
		for _, r := range t.rows {
			out.WriteString(strings.Join(r, "\t") + "\n")
		}
		return write(s.Out, out.Bytes())
	}
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, r := range all {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range all {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
		}
		out.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	return write(s.Out, out.Bytes())
}
