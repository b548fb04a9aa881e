package agent

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/topoctl/topoctl/engine"
)

// The page says first what is wrong, has all that is asked for at first, and may use its own style sheets.
func TestPage(t *testing.T) {
	data, err := (&handler{source: sample(t), started: time.Now()}).page()
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, want := range []string{
		`<p class="answer">1 of 2 opened peers lost, 1 of 3 lanes sick or suspended</p>`,
		"<h3>kv to n2: failed 1s ago</h3>", "<td>wrong_token</td><td class=\"num\">15000</td>", "<td class=\"num\">1.0 GB/s</td>",
		"<td>bench</td><td class=\"num\">4 KiB</td>", "<svg ",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	sheets := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(page, -1)
	for _, sheet := range sheets {
		sum := sha256.Sum256([]byte(sheet[1]))
		if !strings.Contains(html.UnescapeString(page), "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("the policy does not allow the style sheet %.60q", sheet[1])
		}
	}
	if len(sheets) != 2 {
		t.Errorf("%d style sheets, want the page's and the drawing's", len(sheets))
	}
	empty, err := (&handler{source: &still{}, started: time.Now()}).page()
	if err != nil || !strings.Contains(string(empty), "No peers yet") || strings.Contains(string(empty), "<h2>") {
		t.Errorf("without anything: %v\n%s", err, empty)
	}
}

// What peers call themselves, and what they say, is text on the page and nothing else.
func TestPageOfHostilePeers(t *testing.T) {
	const evil, shown = "<script>alert(1)</script>\x1b[2J\u202e", "&lt;script&gt;alert(1)&lt;/script&gt;"
	s := &still{stats: engine.Stats{
		Name: evil, Registry: &engine.RegistryStats{Error: evil}, RefusedConns: map[string]int64{evil: 1},
		Peers:   []engine.PeerStats{{Name: evil, State: "lost", Error: evil}},
		Lanes:   []engine.LaneStats{{Peer: evil, Lane: evil, Transport: evil, Health: "sick", LastError: evil}},
		Served:  []engine.ServedStats{{Peer: evil, Transport: evil, RemoteAddress: evil}},
		Regions: []engine.RegionStats{{Name: evil, Location: evil}},
	}, recent: []*engine.Explanation{{Peer: evil, Label: evil, State: "failed", Error: evil, Notes: []string{evil}}}}
	data, err := (&handler{source: s, started: time.Now()}).page()
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	if strings.Contains(page, "<script") || strings.ContainsAny(page, "\x1b\u202e") {
		t.Error("the page obeys a peer's name")
	}
	if n := strings.Count(page, shown); n < 18 {
		t.Errorf("%d of at least 18 texts are shown", n)
	}
}
