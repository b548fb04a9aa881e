package hwlocxml_test

import (
	"fmt"
	"log"

	"github.com/topoctl/topoctl/discover/formats/hwlocxml"
)

// What "lstopo host.xml" writes.
func ExampleDecode() {
	t, err := hwlocxml.Decode([]byte(`<topology version="2.0">
  <object type="Machine" cpuset="0x3" nodeset="0x1">
    <info name="HostName" value="small"/>
    <object type="Package" os_index="0" cpuset="0x3" nodeset="0x1">
      <object type="NUMANode" os_index="0" cpuset="0x3" nodeset="0x1" local_memory="4096"/>
    </object>
  </object>
</topology>`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Host.Name, "has", len(t.NUMANodes), "NUMA node")
	// Output: small has 1 NUMA node
}
