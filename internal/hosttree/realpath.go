package hosttree

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// RealPath returns the name in the tree of the file or directory that name leads to, with
// every symbolic link resolved.
func RealPath(t Tree, name string) (string, error) {
	if r, ok := t.(interface{ realPath(string) (string, error) }); ok {
		return r.realPath(name)
	}
	real, err := resolve(name, true, treeLinks{t})
	if err == nil {
		_, err = t.Lstat(real)
	}
	if err != nil {
		return "", pathError("realpath", name, cause(err))
	}
	return real, nil
}

// links answers resolve's questions about names that contain no link before their end.
type links interface {
	// link returns a link's target, or "" if the name is not a link.
	link(name string) (string, error)
	isDir(name string) bool
}

// treeLinks asks any tree.
type treeLinks struct{ tree Tree }

func (l treeLinks) link(name string) (string, error) {
	target, err := l.tree.ReadLink(name)
	if errors.Is(err, syscall.EINVAL) {
		return "", nil
	}
	return target, err
}

func (l treeLinks) isDir(name string) bool {
	info, err := l.tree.Lstat(name)
	return err == nil && info.IsDir()
}

// resolve follows the links of a name, element by element, as the kernel does:
// ".." is the parent of what the path has led to so far. A link at the end is
// followed where follow says so.
func resolve(name string, follow bool, ask links) (string, error) {
	if !fs.ValidPath(name) {
		return "", fs.ErrInvalid
	}
	at, rest, followed := ".", name, 0
	maybeFile := false // at may be a file: it is only known not to be a link
	for rest != "" {
		var elem string
		elem, rest, _ = strings.Cut(rest, "/")
		if elem == "" || elem == "." || elem == ".." {
			if maybeFile && !ask.isDir(at) {
				return "", syscall.ENOTDIR
			}
			maybeFile = false
			if elem == ".." {
				if at == "." {
					return "", ErrEscapes
				}
				at = path.Dir(at)
			}
			continue
		}
		next := childName(at, elem)
		if rest == "" && !follow {
			return next, nil
		}
		target, err := ask.link(next)
		if err != nil {
			return "", err
		}
		if target == "" {
			at, maybeFile = next, true
			continue
		}
		if followed++; followed > maxLinks {
			return "", ErrLoop
		}
		if target[0] == '/' {
			at, maybeFile = ".", false
		}
		rest = followedBy(target, rest)
	}
	return at, nil
}

// followedBy is a link's target with the rest of the path. A slash at the end
// asks for a directory, as "/." does.
func followedBy(target, rest string) string {
	switch {
	case rest != "":
		return target + "/" + rest
	case strings.HasSuffix(target, "/"):
		return target + "."
	}
	return target
}

// childName joins a directory of a tree and the name of an entry.
func childName(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
