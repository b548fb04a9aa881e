package live

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/topoctl/topoctl/internal/app/cli/command"
	"github.com/topoctl/topoctl/internal/app/record"
	"github.com/topoctl/topoctl/internal/base/text"
	"github.com/topoctl/topoctl/tui"
)

// recorder says where recordings go: the first to --record, those that the key begins to
// files of their own.
func (o *tuiOptions) recorder(show *tui.Options, files *cleanup) error {
	var first *recordFile
	if o.record != "" {
		if err := o.overwrites(); err != nil {
			return err
		}
		file, err := os.OpenFile(o.record, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, command.OwnerOnly)
		if err != nil {
			return fmt.Errorf("--record %s: %w", o.record, command.Cause(err))
		}
		first = newRecordFile(file)
		files.add(first)
		show.RecordAtOnce = true
	}
	show.Record = func() (tui.Recording, error) {
		if to := first; to != nil {
			first = nil
			return to, nil
		}
		name := "topoctl-" + o.Now().UTC().Format("20060102-150405") + ".jsonl"
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, command.OwnerOnly)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, command.Cause(err))
		}
		return newRecordFile(file), nil
	}
	return nil
}

// overwrites refuses to record into a file that is read: it would be empty.
func (o *tuiOptions) overwrites() error {
	to, err := os.Stat(o.record)
	if err != nil || !to.Mode().IsRegular() {
		return nil //nolint:nilerr // opening it says what is wrong
	}
	for _, read := range [][2]string{{"replay", o.replay}, {"from", o.Globals.From}, {"baseline", o.baseline}, {"probe", o.measured.File}, {"hosts", o.hosts.HostsFile()}} {
		if from, err := os.Stat(read[1]); err == nil && os.SameFile(from, to) {
			return fmt.Errorf("--record %s: --%s reads that file, and recording would overwrite it", o.record, read[0])
		}
	}
	return nil
}

// recordFile is a recording in a file. A record that cannot be written as one is left out,
// and Close says so; a file that cannot be written to ends the recording.
type recordFile struct {
	file    *os.File
	to      *record.Writer
	failed  error // what writing to the file ended with
	refused int
	why     error // why the first one was
	closed  bool
}

func newRecordFile(file *os.File) *recordFile {
	r := &recordFile{file: file}
	r.to = record.NewWriter(lines{r})
	return r
}

// lines takes the lines of a recording.
type lines struct{ to *recordFile }

func (l lines) Write(data []byte) (int, error) {
	n, err := l.to.file.Write(data)
	l.to.failed = command.Cause(err)
	return n, err
}

// Write writes a record.
func (r *recordFile) Write(x *record.Record) error {
	switch err := r.to.Write(x); {
	case r.failed != nil:
		return r.failed
	case err != nil:
		if r.refused++; r.refused == 1 {
			r.why = err
		}
	}
	return nil
}

// Name is the file's.
func (r *recordFile) Name() string { return r.file.Name() }

// Close says what was lost; it may be called again.
func (r *recordFile) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.file.Close()
	if r.refused > 0 {
		err = errors.Join(err, fmt.Errorf("%s: %s left out: %w", r.Name(), text.Plural(r.refused, "record"), r.why))
	}
	return err
}

// saveHere writes a file into the working directory or, where that cannot be written to,
// into the one for temporary files, and says where it is.
func saveHere(name string, data []byte) (string, error) {
	var first error
	for _, dir := range []string{".", os.TempDir()} {
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err == nil {
			err = command.WriteFile(path, data, command.OwnerOnly)
		}
		if err == nil {
			return path, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}
