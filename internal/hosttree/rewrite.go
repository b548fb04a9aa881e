package hosttree

import (
	"errors"
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
			rewritten := &node{kind: n.kind, target: word(n.target), err: n.err}
			if n.err != nil {
				if said := errorText(n.err); word(said) != said {
					rewritten.err = errors.New(word(said))
				}
			} else if n.kind == 0 {
				rewritten.data = text(name, n.data)
			}
			if err := c.add(newName, rewritten); err != nil {
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
