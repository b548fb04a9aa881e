package compare_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/internal/compare"
)

func TestAttributes(t *testing.T) {
	for i := range compare.Attributes {
		a := &compare.Attributes[i]
		if compare.Of(a.Key) != a {
			t.Errorf("%s is there twice", a.Key)
		}
		if a.Words == "" || (a.Form == compare.Set || a.Form == compare.Count) && !strings.HasSuffix(a.Words, "s") {
			t.Errorf("%s: words %q: want a plural of a set and of what is counted", a.Key, a.Words)
		}
	}
}

// A host of 2 TiB that lost one of 64 modules differs; one whose kernel keeps some for crash dumps does not.
func ExampleSameAmount() {
	const gib = 1 << 30
	fmt.Println(compare.SameAmount(2048*gib, 2016*gib), compare.SameAmount(2048*gib, 2040*gib), compare.SameAmount(16*gib, 16*gib-gib/2))
	// Output:
	// false true true
}
