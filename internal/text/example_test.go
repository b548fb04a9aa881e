package text_test

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/text"
)

func ExampleClip() {
	fmt.Println(text.Clip("µµµµ", 6))
	// Output: µ...
}

func ExampleShellQuote() {
	fmt.Println(text.ShellQuote("$HOME isn't read"))
	// Output: '$HOME isn'\''t read'
}
