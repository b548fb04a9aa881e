package peerdoc_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/topoctl/topoctl/engine/internal/memory"
	"github.com/topoctl/topoctl/engine/internal/peerdoc"
	"github.com/topoctl/topoctl/engine/internal/transport"
)

// ranges are regions as of memory that was registered by address, 512 bytes each with gaps.
func ranges(n int, keys func(i int) peerdoc.Keys) []peerdoc.Region {
	out := make([]peerdoc.Region, n)
	for i := range out {
		out[i] = peerdoc.Region{
			ID: memory.ID(i + 1), Name: fmt.Sprintf("region-%d", i+7), Bytes: 512, Address: 0x7f1200000000 + uint64(i)*1024,
			Location: "cpu:0", Read: true, Keys: keys(i),
		}
	}
	return out
}

func noKeys(int) peerdoc.Keys { return nil }

// Packed regions as other implementations see them.
func TestPackedDocument(t *testing.T) {
	regions := ranges(32, noKeys)
	regions[31].ID, regions[31].Bytes, regions[31].Address = 5<<32|9, 1<<40, 0
	d := peerdoc.Descriptor{Name: "n", Epoch: 1, Regions: regions}
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	// By hand: 01 0c 80 80 80 80 c0 c4 3f 80 04 is ID 0+1, number 0+1+6, address 0x7f1200000000,
	// 512 bytes; 01 00 80 08 80 04 is ID +1, number +1, address 512 behind the end, 512 bytes.
	rows := []byte{0x01, 0x0c, 0x80, 0x80, 0x80, 0x80, 0xc0, 0xc4, 0x3f, 0x80, 0x04}
	for range 30 {
		rows = append(rows, 0x01, 0x00, 0x80, 0x08, 0x80, 0x04)
	}
	rows = append(rows, 0xea, 0xff, 0xff, 0xff, 0x4f, 0x00, 0xff, 0xe7, 0x83, 0x80, 0xc0, 0xc4, 0x3f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20)
	want := `{"schema":"topoctl.peer/v1","name":"n","epoch":"1","sequence":0,"endpoints":[],"regions":[],` +
		`"packed":[{"location":"cpu:0","read":true,"write":false,"rows":"` + base64.StdEncoding.EncodeToString(rows) + `"}]}`
	if string(data) != want {
		t.Errorf("%s\nwant\n%s", data, want)
	}
	got, err := peerdoc.ParseDescriptor(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(regions, got.Regions); diff != "" {
		t.Errorf("read back (-want +got)\n%s", diff)
	}
	x := peerdoc.Delta{From: 1, To: 2, Opened: regions}
	if data, err = x.Encode(); err != nil || !strings.Contains(string(data), `"packed":[{"location":"cpu:0"`) || strings.Contains(string(data), "opened") {
		t.Fatalf("%.200s, %v", data, err)
	}
	y, err := peerdoc.ParseDelta(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&x, y); diff != "" {
		t.Errorf("read back (-want +got)\n%s", diff)
	}
}

// Keys that all regions of a pack have in common are sent once, others one by one; what is
// few, or has a name that was given, is not packed.
func TestPackedKeys(t *testing.T) {
	regions := ranges(68, func(i int) peerdoc.Keys {
		return peerdoc.Keys{"shm": "memfd", "rdma": fmt.Sprintf("1 512 r %x:%x", i, i*i)}
	})
	for i := range 31 {
		regions[i].Location = "gpu:0"
	}
	regions[40].Name, regions[41].Name, regions[42].Name, regions[43].Name = "kv", "region-07", "region-", "region-+7"
	regions = append(regions, ranges(101, noKeys)[68:]...)
	d := peerdoc.Descriptor{Schema: peerdoc.SchemaPeer, Name: "n", Epoch: 1, Regions: regions, Endpoints: []transport.Endpoint{}}
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Regions []struct{ ID string }
		Packed  []struct {
			Location string
			Keys     map[string][]string
		}
	}
	if err := json.Unmarshal(data, &sent); err != nil {
		t.Fatal(err)
	}
	if len(sent.Regions) != 31+4 || sent.Regions[0].ID != "1" || sent.Regions[31].ID != "41" {
		t.Errorf("not packed: %+v", sent.Regions)
	}
	if len(sent.Packed) != 2 || len(sent.Packed[0].Keys["shm"]) != 1 || len(sent.Packed[0].Keys["rdma"]) != 33 || sent.Packed[1].Keys != nil {
		t.Errorf("packed: %+v", sent.Packed)
	}
	got, err := peerdoc.ParseDescriptor(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&d, got); diff != "" {
		t.Errorf("read back (-want +got)\n%s", diff)
	}
}

// What is sent is what comes, whatever the regions are.
func TestPackedRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var regions []peerdoc.Region
		id := uint64(0)
		anything := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 9), rapid.Just(uint64(math.MaxUint64)))
		names := map[string]bool{}
		for range rapid.IntRange(0, 150).Draw(rt, "regions") {
			step := rapid.OneOf(rapid.Uint64Range(1, 5), rapid.Uint64Range(1, 1<<40)).Draw(rt, "step")
			id += step
			r := peerdoc.Region{
				ID: memory.ID(id), Name: fmt.Sprintf("region-%d", anything.Draw(rt, "number")), Bytes: rapid.Int64Range(1, math.MaxInt64).Draw(rt, "bytes"),
				Address: anything.Draw(rt, "address"), Location: rapid.SampledFrom([]string{"", "gpu:0"}).Draw(rt, "location"),
				Read: true, Write: rapid.Bool().Draw(rt, "write"),
			}
			for names[r.Name] {
				r.Name += "1"
			}
			names[r.Name] = true
			if r.Address > math.MaxUint64-uint64(r.Bytes) {
				r.Address = 0
			}
			if rapid.Bool().Draw(rt, "keys") {
				r.Keys = peerdoc.Keys{"rdma": rapid.SampledFrom([]string{"", "1", "2"}).Draw(rt, "key"), "shm": "memfd"}
			}
			if rapid.IntRange(0, 40).Draw(rt, "another") == 0 && r.Keys != nil {
				r.Keys["shm"] = "window"
			}
			regions = append(regions, r)
		}
		d := peerdoc.Descriptor{Name: "n", Epoch: 1, Regions: regions}
		data, err := d.Encode()
		if err != nil {
			rt.Fatal(err)
		}
		got, err := peerdoc.ParseDescriptor(data)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(regions, got.Regions); diff != "" && len(regions)+len(got.Regions) > 0 {
			rt.Fatalf("(-want +got)\n%s", diff)
		}
		most := 0
		for i := range regions {
			most += regions[i].MostBytes()
		}
		if len(data) > most+200 {
			rt.Fatalf("%d bytes, and each region was to take %d together", len(data), most)
		}
	})
}

// 10^5 ranges that do not touch fit with room to spare; with keys as RDMA's, fewer.
func TestPackedSize(t *testing.T) {
	rdma := func(devices int) func(int) peerdoc.Keys {
		return func(i int) peerdoc.Keys {
			return peerdoc.Keys{"rdma": "1 512 rw" + strings.Repeat(fmt.Sprintf(" 3fa1b2c3:%x:%x", 0x1800000+i*256, 0x3fffff<<30+i*1024), devices)}
		}
	}
	for _, c := range []struct {
		what string
		n    int
		keys func(i int) peerdoc.Keys
		most int
	}{
		{"no keys", 100_000, noKeys, 820_000},
		{"one key", 100_000, func(int) peerdoc.Keys { return peerdoc.Keys{"tcp": "pieces"} }, 820_000},
		{"one RDMA device", 80_000, rdma(1), peerdoc.MaxBytes},
		{"eight RDMA devices", 15_000, rdma(8), peerdoc.MaxBytes},
	} {
		n := c.n
		data, err := (&peerdoc.Descriptor{Name: "n", Epoch: 1, Regions: ranges(n, c.keys)}).Encode()
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if len(data) > c.most {
			t.Errorf("%s: %d bytes, want at most %d", c.what, len(data), c.most)
		}
		if d, err := peerdoc.ParseDescriptor(data); err != nil || len(d.Regions) != n {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// What a peer may not send.
func TestPackedIsChecked(t *testing.T) {
	row := func(b ...byte) string { return base64.StdEncoding.EncodeToString(b) }
	for packed, want := range map[string]string{
		`[{"rows":"` + row(1, 0, 0) + `"}]`:            "want four numbers",
		`[{"rows":"` + row(1, 0, 0, 0x80) + `"}]`:      "want four numbers",
		`[{"rows":"` + strings.Repeat("/", 16) + `"}]`: "want four numbers", // more than 64 bits
		`[{"rows":"?"}]`:                                                                        "base64",
		`[{"rows":"` + row(1, 0, 0, 0) + `"}]`:                                                  "0 bytes",
		`[{"rows":"` + row(0, 0, 0, 1) + `"}]`:                                                  "ID 0",
		`[{"rows":"` + row(1, 0, 0, 1, 0, 0, 0, 1) + `"}]`:                                      "none twice",
		`[{"rows":"` + row(1, 0, 0, 1, 1, 1, 0, 1) + `"}]`:                                      "are both named",
		`[{"rows":"` + row(9, 0, 0, 1) + `"}]`:                                                  "none twice", // the plain one
		`[{"rows":"` + row(1, 0, 1, 2) + `"}]`:                                                  "below 2^64",
		`[{"rows":"` + row(1, 0, 0, 1) + `","keys":{"rdma":["1","2"]}}]`:                        "2 keys",
		`[{"rows":"` + row(1, 0, 0, 1) + `","keys":{"rdma":[]}}]`:                               "0 keys",
		`[{"rows":"` + row(1, 0, 0, 1, 1, 0, 0, 1) + `","keys":{"a":["1","2"],"b":["1","2"]}}]`: "at most one",
		`[{"rows":"` + row(1, 0, 0, 1) + `","location":"\u0007"}]`:                              "printable",
		`[{"rows":"` + base64.StdEncoding.EncodeToString(make([]byte, 2<<20)) + `"}]`:           "more than 131072 regions",
		`[` + strings.TrimSuffix(strings.Repeat("{},", 1_000_000), ",") + `]`:                   "too many",
		`[{"keys":{"a":[` + strings.TrimSuffix(strings.Repeat(`"",`, 1_000_000), ",") + `]}}]`:  "too many",
	} {
		text := `{"schema":"topoctl.peer/v1","name":"n","epoch":"1","regions":[{"id":"9","name":"kv","bytes":1}],"packed":` + packed + `}`
		if _, err := peerdoc.ParseDescriptor([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.150s: %v: want %q", text, err, want)
		}
	}
}

// Packed rows are refused or sound.
func FuzzPacked(f *testing.F) {
	f.Add([]byte{1, 12, 0x80, 0x80, 0x80, 0x80, 0xc0, 0xc4, 0x3f, 0x80, 4, 1, 0, 0x80, 8, 0x80, 4}, "1 512 r 1:2", true)
	f.Add([]byte{1, 0, 0, 1}, "", false)
	f.Fuzz(func(t *testing.T, rows []byte, key string, write bool) {
		document, err := json.Marshal(map[string]any{
			"schema": peerdoc.SchemaPeer, "name": "n", "epoch": "1", "packed": []any{map[string]any{
				"rows": rows, "write": write, "keys": map[string]any{"rdma": []string{key}},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		d, err := peerdoc.ParseDescriptor(document)
		if err != nil {
			return
		}
		again, err := d.Encode()
		if err != nil {
			if strings.Contains(err.Error(), "want at most") { // fewer are alike than were packed
				return
			}
			t.Fatalf("parsed and cannot be sent: %v", err)
		}
		e, err := peerdoc.ParseDescriptor(again)
		if err != nil {
			t.Fatalf("%v\n%s", err, again)
		}
		if diff := cmp.Diff(d, e); diff != "" {
			t.Fatal(diff)
		}
	})
}
