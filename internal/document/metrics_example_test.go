package document_test

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/document"
)

func Example() {
	var t document.Metrics
	port := []string{"port", "mlx5_0"}
	t.Add("topoctl_port_up", document.Gauge, "1 if the port's link is up.", document.BoolValue(true), port...)
	t.Add("topoctl_port_bytes_total", document.Counter, "Bytes that left.", document.IntValue(4096), port...)
	fmt.Printf("%s", t.Bytes())
	// Output:
	// # HELP topoctl_port_up 1 if the port's link is up.
	// # TYPE topoctl_port_up gauge
	// topoctl_port_up{port="mlx5_0"} 1
	// # HELP topoctl_port_bytes_total Bytes that left.
	// # TYPE topoctl_port_bytes_total counter
	// topoctl_port_bytes_total{port="mlx5_0"} 4096
}
