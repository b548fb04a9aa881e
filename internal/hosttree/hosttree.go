// Package hosttree presents a host's files (/sys, /proc, and what topoctl
// recorded) as an fs.FS with symbolic links: of the live machine, of a captured
// directory, of a text archive, or of a machine spec.
package hosttree

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Tree is a host's files. Names are as in fs.FS: slash-separated, without a
// leading slash ("sys/class/net"). Symbolic links, relative or absolute, are
// followed inside the tree: an absolute target starts at the tree's root, and a
// path that would leave the root is an error, never another file.
//
// ReadFile refuses what is larger than MaxFileSize and what is not a regular
// file. ReadDir is sorted by name and does not follow the links that it lists.
// A Tree may be read by several goroutines at once.
type Tree interface {
	fs.ReadFileFS
	fs.ReadDirFS
	fs.ReadLinkFS
}

// Limits of every tree.
const (
	// MaxFileSize is the most bytes that one file may hold. The largest file
	// that discovery reads is /proc/cpuinfo, about 2 KiB for each CPU.
	MaxFileSize = 4 << 20
	// maxLinks is the most symbolic links on one path, as in Linux.
	maxLinks = 40
	// maxName is the longest name and the longest link target, as in Linux.
	maxName = 4096
)

// Errors that a tree returns in addition to those of package fs, inside an *fs.PathError.
var (
	ErrEscapes    = errors.New("path escapes from the tree")
	ErrLoop       = fmt.Errorf("symlink loop (more than %d links)", maxLinks)
	ErrTooLarge   = fmt.Errorf("larger than %d MiB", MaxFileSize>>20)
	ErrNotRegular = errors.New("not a regular file")
	// ErrNotCaptured is the error for a file that a capture lists without its content.
	// errors.Is also matches it with fs.ErrNotExist.
	ErrNotCaptured error = notCaptured{}
)

type notCaptured struct{}

func (notCaptured) Error() string        { return "not captured" }
func (notCaptured) Is(target error) bool { return target == fs.ErrNotExist }

// pathError makes the error of one operation on one name.
func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// cause is the cause of an *fs.PathError, without operation and path.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// checkName says whether a tree can have the name.
func checkName(name string) error {
	if !fs.ValidPath(name) || strings.ContainsRune(name, 0) {
		return fs.ErrInvalid
	}
	if len(name) > maxName {
		return fmt.Errorf("name longer than %d bytes", maxName)
	}
	return nil
}

// knownErrors are the errors that an archive names and that errors.Is finds, with the texts
// of Linux.
var knownErrors = []struct {
	err  error
	text string
}{
	{ErrNotCaptured, "not captured"},
	{ErrTooLarge, ErrTooLarge.Error()},
	{ErrNotRegular, ErrNotRegular.Error()},
	{fs.ErrNotExist, "no such file or directory"},
	{syscall.EPERM, "operation not permitted"},
	{fs.ErrPermission, "permission denied"},
	{syscall.EINVAL, "invalid argument"},
	{syscall.EIO, "input/output error"},
	{syscall.ENODEV, "no such device"},
	{syscall.ENXIO, "no such device or address"},
	{syscall.EOPNOTSUPP, "operation not supported"},
}

// errorText is an error's text in an archive: one line, not empty.
func errorText(err error) string {
	for _, known := range knownErrors {
		if errors.Is(err, known.err) {
			return known.text
		}
	}
	text := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	if text == "" {
		return "unknown error"
	}
	return text
}

// errorNamed is the inverse of errorText.
func errorNamed(text string) error {
	for _, known := range knownErrors {
		if text == known.text {
			return known.err
		}
	}
	return errors.New(text)
}
