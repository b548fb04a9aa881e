package tui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

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
		m.save(".json", data, "too large for a clipboard ("+units.Bytes(int64(len(data)))+"); in")
		return nil
	}
	m.save(".json", data, "sent to the terminal's clipboard, and saved as")
	return tea.SetClipboard(string(data))
}

// snapshot saves the picture as text.
func (m *model) snapshot() {
	bare := m.look
	bare.Bare = true
	m.save(".txt", []byte(plain(m.draw(&bare))), "saved as")
}

// fileName is a name for a file that there is no other of.
func (m *model) fileName(what, ext string) string {
	name := "topoctl-" + what + m.o.Now().UTC().Format("20060102-150405")
	m.files[name+ext]++
	if n := m.files[name+ext]; n > 1 {
		return fmt.Sprintf("%s-%d%s", name, n, ext)
	}
	return name + ext
}

// nameOf is what a file says that it is called, else the name that it was made by.
func nameOf(file io.Writer, name string) string {
	if f, ok := file.(interface{ Name() string }); ok {
		return f.Name()
	}
	return name
}

// save writes a file in the background and says where it is.
func (m *model) save(ext string, data []byte, done string) {
	if m.o.Create == nil || m.work == nil {
		m.say("there is nowhere to write a file")
		return
	}
	name := m.fileName(string(ui.ViewActions()[m.current])+"-", ext)
	m.say("saving " + name)
	m.work.background(func(context.Context) tea.Msg {
		file, err := m.o.Create(name)
		where := name
		if err == nil {
			where = nameOf(file, name)
			_, err = file.Write(data)
			err = cmp.Or(err, file.Close())
		}
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
