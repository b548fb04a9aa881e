package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/report"
	"github.com/topoctl/topoctl/internal/text"
)

// The output formats. A command that prints a result has formatTable and formatJSON, and may have
// others.
const (
	formatTable    = "table"
	formatWide     = "wide"
	formatJSON     = "json"
	formatJSONL    = "jsonl"
	formatYAML     = "yaml"
	formatTSV      = "tsv"
	formatCSV      = "csv"
	formatMarkdown = "md"
	formatSVG      = "svg"
	formatHTML     = "html"
	formatNagios   = "nagios"
	formatTopology = "topology"
	formatNCCL     = "nccl-xml"
	formatMooncake = "mooncake"
	formatName     = "name"
)

// formatsKnown are all output formats with what they are, in the order of the help.
var formatsKnown = []struct{ Name, About string }{
	{formatTable, "text for people, the answer first"},
	{formatWide, "the same with more columns"},
	{formatJSON, "one document with a schema; of watch, one for each event"},
	{formatJSONL, "a JSON document on each line, as things happen"},
	{formatYAML, "the JSON document as YAML"},
	{formatTSV, "rows for awk and cut: a header, then fields separated by tabs"},
	{formatCSV, "rows for spreadsheets, with a header"},
	{formatMarkdown, "a table for Markdown"},
	{formatSVG, "a drawing"},
	{formatHTML, "a page that needs no other file"},
	{formatNagios, "a monitoring plugin's line and exit code"},
	{formatTopology, "the topology document that --from reads, also as json"},
	{formatNCCL, "NCCL's topology file (NCCL_TOPO_FILE)"},
	{formatMooncake, "Mooncake's NIC priority matrix (MC_CUSTOM_TOPO_JSON)"},
	{formatName, "names alone, one on a line"},
}

// formatAbout is what a format is.
func formatAbout(name string) string {
	for _, f := range formatsKnown {
		if f.Name == name {
			return f.About
		}
	}
	return ""
}

// Write puts all of data on w.
func Write(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// safeJSON is JSON as every command gives it, a document or lines: nothing in it is obeyed
// by a terminal, whatever a host or a peer is called.
func safeJSON(data []byte, err error) ([]byte, error) { return document.Printable(data), err }

// jsonLine is a value as a line of JSON with its end.
func jsonLine(v any) ([]byte, error) { return safeJSON(document.Line(v)) }

// encodeJSON is a value as a document with a key a line, and of lists an element a line.
func encodeJSON(v any) ([]byte, error) {
	data, err := jsonLine(v)
	if err != nil {
		return nil, err
	}
	return document.Layout(data)
}

// printJSON prints a value as a document.
func printJSON(w io.Writer, v any) error {
	data, err := encodeJSON(v)
	if err != nil {
		return err
	}
	return Write(w, data)
}

// answer is what a command found, in the formats that it has.
type answer struct {
	doc    any // with -o json
	text   func() string
	rows   func() string
	svg    func() []byte
	html   func() ([]byte, error)
	nagios func() string
}

// in is an answer in a format.
func (a *answer) in(format string) ([]byte, error) {
	switch format {
	case formatJSON:
		if d, ok := a.doc.(interface{ Encode() ([]byte, error) }); ok {
			return safeJSON(d.Encode())
		}
		return encodeJSON(a.doc)
	case formatTSV:
		return []byte(a.rows()), nil
	case formatSVG:
		return a.svg(), nil
	case formatHTML:
		return a.html()
	case formatNagios:
		return []byte(a.nagios()), nil
	}
	return []byte(a.text()), nil
}

// print prints an answer in the format that was asked for, to standard output or a file.
func (in *Host) print(a answer, to OutFile) error {
	data, err := a.in(in.Format)
	if err != nil {
		return err
	}
	return to.Write(in.Streams, data)
}

// printAnswer prints an answer that is a document or a text.
func (in *Host) printAnswer(doc any, text func() string) error {
	return in.print(answer{doc: doc, text: func() string { return report.Finish(text()) }}, OutFile{})
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
	return []byte(report.Finish(out.String())), nil // the encoder leaves marks that turn the writing direction, and blanks without width
}

// yamlNode reads one JSON value.
func yamlNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	scalar := func(tag, value string) (*yaml.Node, error) {
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
		if text.Printable(value) != value {
			n.Style = yaml.DoubleQuotedStyle // in which toYAML may escape
		}
		return n, nil
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

// tableText is a table for people, its last column wrapped to the terminal.
func (s Streams) tableText(t *report.Table) string {
	return report.Finish((&report.Look{Width: s.Width}).Table(t))
}
