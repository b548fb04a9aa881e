package document_test

import (
	"encoding/json"
	"fmt"

	"github.com/topoctl/topoctl/internal/document"
)

func ExampleWriter() {
	w := document.NewWriter()
	w.Field("schema", "example/v1")
	document.WriteList(w, "hosts", []string{"n0", "n1"})
	data, err := w.Bytes()
	fmt.Printf("%s%v\n", data, err)
	// Output:
	// {"schema":"example/v1",
	// "hosts":[
	// "n0",
	// "n1"
	// ]
	// }
	// <nil>
}

func ExampleReader() {
	r := document.NewReader([]byte(`{"hosts":["n0","n1","n2"]}`))
	var hosts []string
	err := r.Object(0, func(key string) error {
		if key == "hosts" {
			return document.ReadList(r, &hosts, 2, 64, nil)
		}
		return r.Skip() // a newer writer's
	})
	fmt.Println(r.Locate(err))
	// Output:
	// line 1: hosts[2]: too many: at most 2 are read
}

func ExampleLimits() {
	limits := document.Limits{Bytes: 1 << 20, Text: 1 << 10, Elements: 3, Depth: 8}
	data := []byte(`{"lanes":[{},{},{},{}]}`)
	if err := limits.Check(data); err != nil {
		fmt.Println(err)
		return
	}
	var v any
	fmt.Println(json.Unmarshal(data, &v))
	// Output:
	// more than 3 elements of lists, which are not read
}
