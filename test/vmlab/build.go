package vmlab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Image is what machines boot, in the cache.
type Image struct {
	Kernel  string `json:"-"`       // ELF kernel
	Base    string `json:"-"`       // archive of the initial file system
	Release string `json:"release"` // of the kernel, as uname -r says
	// Libraries are the names of the shared libraries inside.
	Libraries []string `json:"libraries"`
	Built     bool     `json:"-"` // just now, and not before
}

// imageOptions of Get.
type imageOptions struct {
	Cache string // folder, made if needed
	// KernelPackage is the Debian package of the kernel, with another release and a slash
	// in front if it is from there: "bookworm-backports/linux-image-amd64". "" is
	// linux-image-amd64 of this machine's release.
	KernelPackage string
	Log           func(format string, args ...any)
}

// toolPackages are unpacked for the machines. The libraries among them are those that
// the programs and the providers need: what is missing here is an error of the build.
var toolPackages = strings.Fields(`
	libc6 libgcc-s1 kmod iproute2 pciutils pci.ids
	libibverbs1 librdmacm1 libibumad3 ibverbs-providers ibverbs-utils rdmacm-utils perftest
	libnl-3-200 libnl-route-3-200 libelf1 libbpf1 libmnl0 libcap2 libdb5.3 libxtables12 libtirpc3
	libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1
	libpci3 libudev1 libkmod2 libzstd1 liblzma5 libssl3 zlib1g libselinux1 libpcre2-8-0 libbsd0 libmd0`)

// tools are the programs of the machines, by the base of their names. A star stands for
// all that begin so.
var tools = strings.Fields(`ip tc ss rdma kmod lspci setpci ib_* ibv_* rping`)

// modules are loaded at boot (see guest), or by the kernel when they are asked for.
var modules = append(slices.Clone(bootModules), strings.Fields(`
	sch_tbf sch_htb sch_prio sch_ingress cls_u32 cls_matchall cls_flower act_gact act_mirred ib_umad`)...)

// bootModules are loaded before anything else.
var bootModules = strings.Fields(`virtio_pci virtio_net virtio_console e1000e
	crc32_generic crc32_pclmul ib_uverbs rdma_ucm rdma_rxe sch_netem`)

// format is raised when the same lists make another image.
const format = 1

const libFolder = "usr/lib/x86_64-linux-gnu"

// getImage gives the image, from the cache if it is there.
func getImage(ctx context.Context, o imageOptions) (*Image, error) {
	if err := checkPrograms(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("image: cache: %w", err)
	}
	unlock, err := lock(filepath.Join(o.Cache, "lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := filepath.Join(o.Cache, "image-"+key(o.KernelPackage))
	if img, err := load(dir); err == nil {
		return img, nil
	}
	if err := build(ctx, o, dir); err != nil {
		return nil, err
	}
	img, err := load(dir)
	if err != nil {
		return nil, err
	}
	img.Built = true
	return img, nil
}

// key names what an image depends on. Newer packages do not make another image: remove
// the cache to have them.
func key(kernelPackage string) string {
	release, _ := os.ReadFile("/etc/os-release") // the machine is as old as its builder
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %q %q %q %q %s", format, kernelPackage, toolPackages, tools, modules, release))
	return fmt.Sprintf("%x", sum[:6])
}

func lock(file string) (func(), error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("image: lock %s: %w", file, err)
	}
	return func() { f.Close() }, nil
}

func load(dir string) (*Image, error) {
	data, err := os.ReadFile(filepath.Join(dir, "image.json"))
	if err != nil {
		return nil, err
	}
	img := &Image{}
	if err := json.Unmarshal(data, img); err != nil {
		return nil, fmt.Errorf("image: %s: %w", dir, err)
	}
	img.Kernel, img.Base = filepath.Join(dir, "vmlinux"), filepath.Join(dir, "base.cpio")
	for _, f := range []string{img.Kernel, img.Base} {
		if _, err := os.Stat(f); err != nil {
			return nil, err
		}
	}
	return img, nil
}

// build makes the image in a folder beside its place and moves it there at the end.
func build(ctx context.Context, o imageOptions, dir string) error {
	suite, name, other := strings.Cut(o.KernelPackage, "/")
	if !other {
		suite, name = "", o.KernelPackage
	}
	if name == "" {
		name = "linux-image-amd64"
	}
	kernelApt, err := newApt(ctx, o.Cache, suite)
	if err != nil {
		return err
	}
	kernel, err := kernelApt.kernel(ctx, name)
	if err != nil {
		return err
	}
	own, err := newApt(ctx, o.Cache, "")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(o.Cache, "build-")
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }() // what stays does no harm
	o.Log("building the image: %s and %d tool packages", kernel, len(toolPackages))
	b := &builder{root: filepath.Join(work, "root"), kroot: filepath.Join(work, "kernel"), out: filepath.Join(work, "image"),
		release: strings.TrimPrefix(kernel, "linux-image-"), tree: bootTree{}}
	debs := filepath.Join(o.Cache, "debs")
	if err := kernelApt.fetch(ctx, debs, b.kroot, kernel); err != nil {
		return err
	}
	if err := own.fetch(ctx, debs, b.root, toolPackages...); err != nil {
		return err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{b.kernel, b.folders, b.programs, b.providers, b.libraries, b.modules, b.write} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return os.Rename(b.out, dir)
}

type builder struct {
	root, kroot, out string
	release          string
	tree             bootTree
	binaries         []string
	libs             []string
}

func (b *builder) kernel(context.Context) error {
	packed, err := os.ReadFile(filepath.Join(b.kroot, "boot", "vmlinuz-"+b.release))
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	unpacked, err := unpackVmlinux(packed)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.out, "vmlinux"), unpacked, 0o644)
}

func (b *builder) folders(context.Context) error {
	for _, f := range []string{"proc", "sys", "dev", "run", "tmp", "root", "out", "etc", "usr/bin", "usr/sbin", "var/run"} {
		b.tree[f] = bootNode{Folder: true}
	}
	// One folder for programs, and the one that the loader knows for libraries.
	for from, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": libFolder} {
		b.tree[from] = bootNode{Link: to}
	}
	b.tree["etc/passwd"] = bootNode{Data: []byte("root:x:0:0:root:/root:/bin/false\n")}
	b.tree["etc/group"] = bootNode{Data: []byte("root:x:0:\n")}
	b.tree["etc/hosts"] = bootNode{Data: []byte("127.0.0.1 localhost\n10.7.99.1 lab1\n10.7.99.2 lab2\n")}
	b.tree["usr/share/misc/pci.ids"] = bootNode{From: filepath.Join(b.root, "usr/share/misc/pci.ids")}
	return nil
}

func (b *builder) programs(context.Context) error {
	for _, pattern := range tools {
		found := false
		for _, dir := range []string{"bin", "sbin", "usr/bin", "usr/sbin"} {
			files, err := filepath.Glob(filepath.Join(b.root, dir, pattern))
			if err != nil {
				return err
			}
			for _, f := range files {
				real, err := filepath.EvalSymlinks(f)
				if err != nil {
					continue // a link to what is not in the packages
				}
				found = true
				b.tree["usr/bin/"+filepath.Base(f)] = bootNode{From: real, Exec: true}
				b.binaries = append(b.binaries, real)
			}
		}
		if !found {
			return fmt.Errorf("image: no program %s in the packages", pattern)
		}
	}
	for _, name := range []string{"modprobe", "insmod", "rmmod", "lsmod"} {
		b.tree["usr/bin/"+name] = bootNode{Link: "kmod"}
	}
	return nil
}

// providers are found by libibverbs in a folder; nothing links to them.
func (b *builder) providers(context.Context) error {
	files, err := filepath.Glob(filepath.Join(b.root, libFolder, "libibverbs", "librxe-rdmav*.so"))
	if err != nil || len(files) == 0 {
		return errors.New("image: no Soft-RoCE provider in ibverbs-providers")
	}
	b.tree["etc/libibverbs.d/rxe.driver"] = bootNode{From: filepath.Join(b.root, "etc/libibverbs.d/rxe.driver")}
	for _, f := range files {
		b.tree[path.Join(libFolder, "libibverbs", filepath.Base(f))] = bootNode{From: f}
		b.binaries = append(b.binaries, f)
	}
	return nil
}

func (b *builder) libraries(context.Context) error {
	folders := []string{filepath.Join(b.root, libFolder), filepath.Join(b.root, "lib/x86_64-linux-gnu")}
	libs, err := sharedLibraries(b.binaries, folders)
	if err != nil {
		return err
	}
	// The C library opens this one by itself when a thread ends; tests load the others.
	for _, extra := range []string{"libgcc_s.so.1", "libibverbs.so.1", "librdmacm.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2", "libm.so.6"} {
		if libs[extra] = find(extra, folders); libs[extra] == "" {
			return fmt.Errorf("image: no %s in the packages", extra)
		}
	}
	for name, file := range libs {
		real, err := filepath.EvalSymlinks(file)
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		b.tree[path.Join(libFolder, name)] = bootNode{From: real, Exec: true}
		b.libs = append(b.libs, name)
	}
	return nil
}

// modules copies the wanted modules with what they depend on, unpacked, and writes
// their index for modprobe.
func (b *builder) modules(ctx context.Context) error {
	kroot := b.kroot
	if _, err := os.Stat(filepath.Join(kroot, "lib/modules")); errors.Is(err, fs.ErrNotExist) {
		kroot = filepath.Join(kroot, "usr") // Debian 13 has no /lib any more
	}
	if _, err := run(ctx, "", "depmod", "-b", kroot, b.release); err != nil {
		return err
	}
	from := filepath.Join(kroot, "lib/modules", b.release)
	small := filepath.Join(b.out, "..", "modules")
	to := filepath.Join(small, "lib/modules", b.release)
	for _, m := range modules {
		out, err := run(ctx, "", "modprobe", "-d", kroot, "-S", b.release, "--show-depends", m)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "insmod" {
				if err := copyModule(f[1], from, to); err != nil {
					return err
				}
			}
		}
	}
	for _, f := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		data, err := os.ReadFile(filepath.Join(from, f))
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		if err := os.WriteFile(filepath.Join(to, f), data, 0o644); err != nil {
			return err
		}
	}
	if _, err := run(ctx, "", "depmod", "-b", small, b.release); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(small, file)
		if err != nil {
			return err
		}
		b.tree["usr/"+filepath.ToSlash(rel)] = bootNode{From: file}
		return nil
	})
}

func copyModule(file, from, to string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	rel, err := filepath.Rel(from, file)
	if err != nil {
		return err
	}
	if name, packed := strings.CutSuffix(rel, ".xz"); packed {
		if data, err = filter(data, "xz", "-dc"); err != nil {
			return fmt.Errorf("image: %s: %w", rel, err)
		}
		rel = name
	}
	out := filepath.Join(to, rel)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, data, 0o644)
}

func (b *builder) write(context.Context) error {
	var archive bytes.Buffer
	if err := writeCPIO(&archive, b.tree); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.out, "base.cpio"), archive.Bytes(), 0o644); err != nil {
		return err
	}
	slices.Sort(b.libs)
	about, err := json.Marshal(Image{Release: b.release, Libraries: b.libs})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.out, "image.json"), about, 0o644)
}
