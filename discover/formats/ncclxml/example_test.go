package ncclxml_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/topoctl/topoctl/discover/formats/ncclxml"
	"github.com/topoctl/topoctl/fixtures"
)

// What NCCL_TOPO_FILE takes, and back.
func Example() {
	t, err := fixtures.Topology("dgx-h100")
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := ncclxml.Encode(&file, t); err != nil {
		log.Fatal(err)
	}
	read, err := ncclxml.Decode(file.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(read.GPUs), "GPUs,", read.Origin)
	// Output: 8 GPUs, import:nccl
}
