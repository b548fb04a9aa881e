package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/topoctl/topoctl/internal/app/draw"
	"github.com/topoctl/topoctl/internal/base/jsontext"
	"github.com/topoctl/topoctl/internal/base/text"
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

// laidOut is a value as a document with a key a line, and of lists an element a line.
func laidOut(v any) ([]byte, error) {
	data, err := jsonLine(v)
	if err != nil {
		return nil, err
	}
	return jsontext.Layout(data)
}

// printJSON prints a value as a document.
func printJSON(w io.Writer, v any) error {
	data, err := laidOut(v)
	if err != nil {
		return err
	}
	return write(w, data)
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
		cells[i] = text.Printable(c)
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
	for _, line := range text.Columns(append([][]string{t.head}, t.rows...)) {
		out.WriteString(line + "\n")
	}
	return write(s.Out, out.Bytes())
}
