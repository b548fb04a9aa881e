package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestHello(t *testing.T) {
	var out bytes.Buffer
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	if first, explained, _ := strings.Cut(out.String(), "\n"); first != "over every NIC" || !strings.Contains(explained, "1 MiB") {
		t.Errorf("it printed\n%s", out.String())
	}
}
