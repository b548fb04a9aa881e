package vmlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrUnavailable is given where the lab cannot be had on this machine: a program is
// missing, or packages cannot be fetched. All other errors mean that the lab is broken.
var ErrUnavailable = errors.New("the lab cannot be had here")

// hostPrograms are what the builder runs, and the Debian package of each.
var hostPrograms = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86", "apt-get": "apt", "dpkg-deb": "dpkg",
	"depmod": "kmod", "modprobe": "kmod", "xz": "xz-utils", "go": "golang",
}

// searchPath has the folders of root's programs, which are not on everybody's path.
const searchPath = ":/usr/sbin:/sbin"

// checkPrograms says which program is missing, if any.
func checkPrograms() error {
	for _, p := range []string{"qemu-system-x86_64", "apt-get", "dpkg-deb", "depmod", "modprobe", "xz", "go"} {
		if lookPath(p) == "" {
			return fmt.Errorf("%w: no program %s (Debian: apt-get install --no-install-recommends %s)", ErrUnavailable, p, hostPrograms[p])
		}
	}
	return nil
}

func lookPath(program string) string {
	if at, err := exec.LookPath(program); err == nil {
		return at
	}
	for _, dir := range filepath.SplitList(searchPath) {
		if at, err := exec.LookPath(filepath.Join(dir, program)); dir != "" && err == nil {
			return at
		}
	}
	return ""
}

// run gives what a program printed; its complaint is in the error.
func run(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, lookPath(program), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("image: %s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return out, nil
}

// apt is the machine's own, or one with lists of its own for another Debian release.
type apt struct {
	options []string
	private bool
}

// mirror is where Debian's releases are.
const mirror = "http://deb.debian.org/debian"

// newApt makes an apt for a release ("bookworm-backports"), whose lists lie in the cache;
// "" is the machine's.
func newApt(ctx context.Context, cache, suite string) (*apt, error) {
	a := &apt{options: []string{"-q", "-o", "DPkg::Lock::Timeout=400"}}
	if suite == "" {
		return a, nil
	}
	dir := filepath.Join(cache, "apt-"+suite)
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("image: %w", err)
		}
	}
	list := filepath.Join(dir, "sources.list")
	source := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, suite)
	if err := os.WriteFile(list, []byte(source), 0o644); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	a.private = true
	for _, o := range []string{"Dir::Etc::SourceList=" + list, "Dir::Etc::SourceParts=/dev/null",
		"Dir::State=" + filepath.Join(dir, "state"), "Dir::State::status=/dev/null", "Dir::Cache=" + filepath.Join(dir, "cache")} {
		a.options = append(a.options, "-o", o)
	}
	return a, a.update(ctx)
}

func (a *apt) update(ctx context.Context) error {
	if _, err := run(ctx, "", "apt-get", append(slices.Clone(a.options), "update")...); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// kernel is the package that holds the kernel: a package linux-image-amd64 is empty, and
// depends on it.
func (a *apt) kernel(ctx context.Context, name string) (string, error) {
	if name != "linux-image-amd64" {
		return name, nil
	}
	out, err := run(ctx, "", "apt-cache", append(slices.Clone(a.options), "depends", name)...)
	if err == nil {
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "Depends:" && strings.HasPrefix(f[1], "linux-image-") {
				return f[1], nil
			}
		}
		err = errors.New("apt-cache names none (is apt-get update needed, or is this not Debian on amd64?)")
	}
	return "", fmt.Errorf("%w: no kernel package: %w", ErrUnavailable, err)
}

// fetch downloads packages that are not in the folder yet, and unpacks all. A list of
// packages that is too old names files that are no more: root reads it once more.
func (a *apt) fetch(ctx context.Context, folder, into string, packages ...string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	var missing []string
	for _, p := range packages {
		if deb(folder, p) == "" {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		get := append(append(slices.Clone(a.options), "download"), missing...)
		_, err := run(ctx, folder, "apt-get", get...)
		if err != nil && !a.private && os.Geteuid() == 0 {
			if err = a.update(ctx); err == nil {
				_, err = run(ctx, folder, "apt-get", get...)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	for _, p := range packages {
		if _, err := run(ctx, "", "dpkg-deb", "-x", deb(folder, p), into); err != nil {
			return err
		}
	}
	return nil
}

// deb is the file of a package, "" for none.
func deb(folder, name string) string {
	files, err := filepath.Glob(filepath.Join(folder, name+"_*.deb"))
	if err != nil || len(files) == 0 {
		return ""
	}
	return files[len(files)-1]
}
