package text_test

import (
	"fmt"
	"strings"

	"github.com/topoctl/topoctl/internal/text"
)

func ExamplePrintable() {
	fmt.Println(text.Printable("mlx5\x1b[2J µ"))
	// Output: mlx5\x1b[2J µ
}

func ExampleASCII() {
	fmt.Println(text.ASCII("Größe"))
	// Output: Gr\u00f6\u00dfe
}

func ExamplePlural() {
	fmt.Println(text.Plural(1, "port"), text.Plural(2, "switch"), text.Plural(3, "retry", "retries"))
	// Output: 1 port 2 switches 3 retries
}

func ExampleNoun() {
	fmt.Println("the", text.Noun(2, "port"))
	// Output: the ports
}

func ExampleJoin() {
	fmt.Println(text.Join([]string{"gpu:0", "gpu:1", "gpu:2"}, 2))
	fmt.Println(text.Join([]string{"gpu:0", "gpu:1", "gpu:2", "gpu:3"}, 2))
	// Output:
	// gpu:0, gpu:1 and gpu:2
	// gpu:0, gpu:1 and 2 more
}

func ExampleList() {
	fmt.Println(text.List([]string{"gpu:0", "gpu:1", "gpu:2"}, 2))
	fmt.Println(text.List([]string{"gpu:0", "gpu:1", "gpu:2", "gpu:3"}, 2))
	// Output:
	// gpu:0, gpu:1, gpu:2
	// gpu:0, gpu:1 and 2 more
}

func ExampleWidth() {
	fmt.Println(text.Width("µs"), text.Width("日本"))
	// Output: 2 4
}

func ExamplePad() {
	fmt.Println(text.Pad("port", 8) + "|")
	// Output: port    |
}

func ExamplePadLeft() {
	fmt.Println(text.PadLeft("48.3", 8))
	// Output:     48.3
}

func ExampleCut() {
	fmt.Println(text.Cut("ConnectX-7", 8, text.Ellipsis))
	// Output: Connect…
}

func ExampleClip() {
	fmt.Println(text.Clip("µµµµ", 6))
	// Output: µ...
}

func ExampleWrap() {
	fmt.Println(strings.Join(text.Wrap("The link is narrower than both ends.", 20), "\n"))
	// Output:
	// The link is narrower
	// than both ends.
}

func ExampleColumns() {
	for _, line := range text.Columns([][]string{
		{"port", "GB/s", "why"},
		{"mlx5_0", "48.3", "same switch"},
		{"mlx5_10", "9.1", "other socket"},
	}, text.Column{}, text.Column{Right: true}, text.Column{}) {
		fmt.Println(line)
	}
	// Output:
	// port     GB/s  why
	// mlx5_0   48.3  same switch
	// mlx5_10   9.1  other socket
}

func ExampleWrapColumns() {
	for _, lines := range text.WrapColumns([][]string{
		{"port", "why"},
		{"mlx5_0", "below the same switch as the GPU"},
	}, 34) {
		fmt.Println(strings.Join(lines, "\n"))
	}
	// Output:
	// port    why
	// mlx5_0  below the same switch as
	//         the GPU
}

func ExampleTSV() {
	for _, line := range text.TSV([][]string{{"PORT", "WHY"}, {"mlx5_0", "same switch"}}) {
		fmt.Println(strings.ReplaceAll(line, "\t", "<TAB>"))
	}
	// Output:
	// PORT<TAB>WHY
	// mlx5_0<TAB>same switch
}

func ExampleShellQuote() {
	fmt.Println(text.ShellQuote("$HOME isn't read"))
	// Output: '$HOME isn'\''t read'
}
