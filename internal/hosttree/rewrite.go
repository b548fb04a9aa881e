package hosttree

import (
	"errors"
	"io/fs"
)

// Rewrite returns a copy of the tree with text applied to every name, link target, error and
// file. text gets the name of the file, or "" for anything but the content of a file. Entries
// for which drop is true are left out.
func (m *Mem) Rewrite(text func(name string, data []byte) []byte, drop func(name string) bool) (*Mem, error) {
	c := NewMem()
	c.Comment = m.Comment
	word := func(s string) string { return string(text("", []byte(s))) }
	var copyDir func(dir *node, to string) error
	copyDir = func(dir *node, to string) error {
		for _, e := range dir.entries() {
			n := e.(*node)
			name := n.path()
			if drop(name) {
				continue
			}
			newName := childName(to, word(n.name))
			if err := n.copyTo(c, newName, word, func() []byte { return text(name, n.data) }); err != nil {
				return err
			}
			if n.IsDir() {
				if err := copyDir(n, newName); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return c, copyDir(m.root, ".")
}

// copyTo adds the node to another tree under a new name.
func (n *node) copyTo(c *Mem, name string, word func(string) string, content func() []byte) error {
	err := n.err
	if err != nil {
		if said := errorText(err); word(said) != said {
			err = errors.New(word(said))
		}
	}
	switch {
	case n.IsDir() && err != nil:
		return c.AddUnreadableDir(name, err)
	case n.IsDir():
		return c.AddDir(name)
	case n.kind == fs.ModeSymlink:
		return c.AddSymlink(name, word(n.target))
	case err != nil:
		return c.AddUnreadable(name, err)
	}
	return c.AddFile(name, content())
}
