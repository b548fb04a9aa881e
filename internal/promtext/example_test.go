package promtext_test

import (
	"fmt"

	"github.com/topoctl/topoctl/internal/promtext"
)

func Example() {
	var t promtext.Text
	port := []string{"port", "mlx5_0"}
	t.Add("topoctl_port_up", promtext.Gauge, "1 if the port's link is up.", promtext.Bool(true), port...)
	t.Add("topoctl_port_bytes_total", promtext.Counter, "Bytes that left.", promtext.Int(4096), port...)
	fmt.Printf("%s", t.Bytes())
	// Output:
	// # HELP topoctl_port_up 1 if the port's link is up.
	// # TYPE topoctl_port_up gauge
	// topoctl_port_up{port="mlx5_0"} 1
	// # HELP topoctl_port_bytes_total Bytes that left.
	// # TYPE topoctl_port_bytes_total counter
	// topoctl_port_bytes_total{port="mlx5_0"} 4096
}
