package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/topoctl/topoctl/test/vmlab"
)

func TestDisguise(t *testing.T) {
	dir := t.TempDir()
	config := bytes.Repeat([]byte{0x55}, 256)
	uevent := "DRIVER=bochs-drm\nPCI_CLASS=38000\nPCI_ID=1234:1111\nPCI_SUBSYS_ID=1AF4:1100\nPCI_SLOT_NAME=0000:25:00.0\nMODALIAS=pci:v00001234\n"
	for name, data := range map[string][]byte{"config": config, "uevent": []byte(uevent)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := disguise(dir, &vmlab.H100)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"vendor": "0x10de\n", "device": "0x2330\n", "class": "0x030200\n", "subsystem_device": "0x16c1\n",
		"modalias": "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00\n",
		"uevent": "DRIVER=bochs-drm\nPCI_CLASS=30200\nPCI_ID=10DE:2330\nPCI_SUBSYS_ID=10DE:16C1\nPCI_SLOT_NAME=0000:25:00.0\n" +
			"MODALIAS=pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00\n",
	} {
		if got := string(files[name]); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	c := files["config"]
	if got := [...]byte{c[0], c[1], c[2], c[3], c[8], c[9], c[10], c[11], c[0x2c], c[0x2e], c[0x2f]}; len(c) != 256 ||
		got != [...]byte{0xde, 0x10, 0x30, 0x23, 0x55, 0, 2, 3, 0xde, 0xc1, 0x16} {
		t.Errorf("configuration space: % x", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), config[:16], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := disguise(dir, &vmlab.H100); err == nil || !strings.Contains(err.Error(), "16 bytes") {
		t.Error(err)
	}
}
