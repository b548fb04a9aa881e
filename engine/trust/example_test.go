package trust_test

import (
	"fmt"
	"log"
	"time"

	"github.com/topoctl/topoctl/engine/trust"
)

// A CA of a cluster, and the certificate of one engine.
func ExamplePair_Issue() {
	now := time.Now()
	ca, err := trust.NewCA(trust.Subject{CommonName: "cluster", From: now, Until: now.AddDate(5, 0, 0)})
	if err != nil {
		log.Fatal(err)
	}
	host, err := ca.Issue(trust.Subject{DNS: []string{"node1"}, From: now, Until: now.AddDate(1, 0, 0)})
	if err != nil {
		log.Fatal(err)
	}
	certificates, err := trust.ParseCertificates(host.Certificate)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(trust.Names(certificates[0]))
	// Output: [node1]
}
