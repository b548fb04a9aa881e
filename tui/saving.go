package tui

import (
	"bytes"
	"context"
	"encoding/json"

	tea "charm.land/bubbletea/v2"

	"github.com/topoctl/topoctl/internal/document"
	"github.com/topoctl/topoctl/internal/units"
	"github.com/topoctl/topoctl/tui/internal/ui"
)

// maxClipboard is the most that is sent to a clipboard: terminals take little more.
const maxClipboard = 64 << 10

// copySelection copies what is under the cursor as JSON. No terminal says whether it took
// it, so it goes into a file too.
func (m *model) copySelection() tea.Cmd {
	var selected any
	if failed := guarded(func() { selected = m.view().Selection(m.env(&m.look)) }); failed != "" {
		m.say("this view failed: " + failed)
		return nil
	}
	if selected == nil {
		m.say("nothing is selected")
		return nil
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(selected); err != nil {
		m.say("cannot copy: " + m.look.Safe(err.Error()))
		return nil
	}
	data := document.Printable(out.Bytes())
	if len(data) > maxClipboard {
		m.save("json", data, "too large for a clipboard ("+units.Bytes(int64(len(data)))+"); in")
		return nil
	}
	m.save("json", data, "sent to the terminal's clipboard, and saved as")
	return tea.SetClipboard(string(data))
}

// snapshot saves the picture as text.
func (m *model) snapshot() {
	bare := m.look
	bare.Bare = true
	m.save("txt", []byte(plain(m.draw(&bare))), "saved as")
}

// save writes a file in the background and says where it is.
func (m *model) save(ext string, data []byte, done string) {
	if m.o.Save == nil || m.work == nil {
		m.say("there is nowhere to write a file")
		return
	}
	name := "topoctl-" + string(ui.ViewActions()[m.current]) + "-" + m.o.Now().UTC().Format("20060102-150405") + "." + ext
	m.say("saving " + name)
	m.work.background(func(context.Context) tea.Msg {
		where, err := m.o.Save(name, data)
		return answered(func(m *model) tea.Cmd {
			if err != nil {
				m.say("cannot save: " + m.look.Safe(err.Error()))
				return nil
			}
			m.say(done + " " + m.look.Safe(where))
			return nil
		})
	})
}
