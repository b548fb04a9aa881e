package vmlab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const initPackage = "github.com/topoctl/topoctl/test/vmlab/cmd/vmlab-init"

// bundle builds the programs of a run and writes the initial file system: the image's,
// and behind it an archive with what is this run's own.
func bundle(ctx context.Context, o *Options, img *Image, dir string) (file string, suites []string, err error) {
	b := &bundler{ctx: ctx, o: o, dir: dir, tree: bootTree{}}
	if err := b.gobuild("init", []string{"CGO_ENABLED=0"}, "build", "-trimpath", "-ldflags=-s -w", initPackage); err != nil {
		return "", nil, err
	}
	b.tree["init"] = bootNode{From: filepath.Join(dir, "init"), Exec: true}
	j := &Job{Machines: o.Machines, Modules: bootModules}
	for i := range o.Suites {
		s, err := b.suite(i, &o.Suites[i])
		if err != nil {
			return "", nil, err
		}
		j.Suites = append(j.Suites, s)
		suites = append(suites, s.Name)
	}
	text, err := json.Marshal(j)
	if err != nil {
		return "", nil, err
	}
	b.tree[strings.TrimPrefix(jobFile, "/")] = bootNode{Data: text}
	if err := b.libraries(img); err != nil {
		return "", nil, err
	}
	file = filepath.Join(dir, "initrd")
	return file, suites, b.write(file, img.Base)
}

type bundler struct {
	ctx      context.Context
	o        *Options
	dir      string
	tree     bootTree
	binaries []string
}

// gobuild runs the go tool; its output lies in the bundle's folder.
func (b *bundler) gobuild(out string, env []string, command string, args ...string) error {
	words := []string{command}
	if command == "test" {
		words = append(words, "-c", "-tags=vmlab", "-vet=off")
	}
	words = append(append(words, "-o", filepath.Join(b.dir, out)), args...)
	cmd := exec.CommandContext(b.ctx, "go", words...)
	cmd.Env = append(append(os.Environ(), "GOOS=linux", "GOARCH=amd64"), env...)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &errs, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("vmlab: go %s: %w\n%s", strings.Join(words, " "), err, errs.Bytes())
	}
	return nil
}

func (b *bundler) suite(i int, s *Suite) (BuiltSuite, error) {
	list, err := exec.CommandContext(b.ctx, "go", "list", "-tags=vmlab", "-f", "{{.Dir}}", s.Package).Output()
	if err != nil {
		return BuiltSuite{}, fmt.Errorf("vmlab: no package %s: %w", s.Package, err)
	}
	folder := strings.TrimSpace(string(list))
	out := BuiltSuite{Name: fmt.Sprintf("%s-%d", path.Base(filepath.ToSlash(folder)), i), Args: s.Args}
	args := []string{"-ldflags=-s -w", s.Package}
	if b.o.Race {
		args = append([]string{"-race"}, args...)
	}
	if err := b.gobuild(out.Name, []string{"CGO_ENABLED=1"}, "test", args...); err != nil {
		return BuiltSuite{}, err
	}
	if _, err := os.Stat(filepath.Join(b.dir, out.Name)); err != nil {
		return BuiltSuite{}, fmt.Errorf("vmlab: package %s has no tests under the tag vmlab", s.Package)
	}
	b.add(path.Join(out.Dir(), Test), filepath.Join(b.dir, out.Name))
	for _, p := range s.Programs {
		name := "program-" + path.Base(p)
		if err := b.gobuild(name, []string{"CGO_ENABLED=1"}, "build", "-trimpath", "-ldflags=-s -w -extldflags=-Wl,-z,lazy", p); err != nil {
			return BuiltSuite{}, err
		}
		b.add(path.Join(ProgramsDir, path.Base(p)), filepath.Join(b.dir, name))
	}
	for _, f := range s.Files {
		b.add(path.Join(ProgramsDir, filepath.Base(f)), f)
	}
	return out, b.testdata(filepath.Join(folder, "testdata"), path.Join(out.Dir(), "testdata"))
}

func (b *bundler) add(at, file string) {
	b.tree[strings.TrimPrefix(at, "/")] = bootNode{From: file, Exec: true}
	b.binaries = append(b.binaries, file)
}

func (b *bundler) testdata(folder, at string) error {
	if _, err := os.Stat(folder); os.IsNotExist(err) {
		return nil
	}
	return filepath.WalkDir(folder, func(file string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		b.tree[strings.TrimPrefix(path.Join(at, filepath.ToSlash(rel)), "/")] = bootNode{From: file}
		return nil
	})
}

// libraries adds those of this machine that the image does not have.
func (b *bundler) libraries(img *Image) error {
	libs, err := sharedLibraries(b.binaries, []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"})
	if err != nil {
		return err
	}
	for name, file := range libs {
		if !slices.Contains(img.Libraries, name) {
			b.tree["usr/lib/x86_64-linux-gnu/"+name] = bootNode{From: file, Exec: true}
		}
	}
	return nil
}

func (b *bundler) write(file, base string) error {
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("vmlab: %w", err)
	}
	defer out.Close()
	in, err := os.Open(base)
	if err != nil {
		return fmt.Errorf("vmlab: %w", err)
	}
	defer in.Close()
	// The kernel takes archives one behind the other, each from a word of four bytes on.
	n, err := io.Copy(out, in)
	if err != nil {
		return fmt.Errorf("vmlab: %w", err)
	}
	if _, err := out.Write(make([]byte, (4-n&3)&3)); err != nil {
		return fmt.Errorf("vmlab: %w", err)
	}
	if err := writeCPIO(out, b.tree); err != nil {
		return err
	}
	return out.Close()
}
