package sysfs

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/discover/topo"
)

// Files of the process that looks, of which only pieces are read.
const (
	environFile = "proc/self/environ"
	statusFile  = "proc/self/status"
	uidMapFile  = "proc/self/uid_map"
)

// settingFiles are host-wide files that set what the environment leaves unset.
// Source: NCCL and UCX documentation.
var settingFiles = []string{"etc/nccl.conf", "etc/ucx/ucx.conf"}

// ProcessFiles are the files of the looking process that a capture keeps, cut
// down by ForCapture.
func ProcessFiles() []string { return []string{LimitsFile, environFile, statusFile, uidMapFile} }

// readEnvironment reads what RDMA programs are told; nil where the environment
// of this process could not be read. That is no warning: the kernel keeps it from
// a program with file capabilities.
func (r *reader) readEnvironment() *topo.Environment {
	data, err := r.tree.ReadFile(environFile)
	if err != nil {
		return nil
	}
	variables := settings(data, 0, "/"+environFile)
	out := &topo.Environment{Settings: []topo.Setting{}}
	for _, name := range settingFiles {
		list, _ := readWhole(r, name, func(data []byte) ([]topo.Setting, error) { return settings(data, '\n', "/"+name), nil })
		out.Settings = append(out.Settings, list...)
	}
	out.Settings = append(out.Settings, variables...)
	r.t.Host.Facts.Set("environment", topo.SourceProc, "/"+environFile)
	return out
}

// maxSettings bounds the settings that are taken from one file.
const maxSettings = 64

// settings picks the relevant ones from NAME=VALUE with sep between them.
func settings(data []byte, sep byte, where string) []topo.Setting {
	var out []topo.Setting
	for line := range bytes.SplitSeq(data, []byte{sep}) {
		if name, value, ok := setting(line); ok && len(out) < maxSettings {
			out = append(out, topo.Setting{Name: name, Value: value, Where: where})
		}
	}
	return out
}

// relevantSettings choose a port's GID by its index.
// Source: the documentation of NCCL and NVSHMEM (environment variables), ucx_info -c,
// Mooncake's transfer engine (environment variables).
var relevantSettings = []string{"MC_GID_INDEX", "NCCL_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX", "UCX_IB_GID_INDEX"}

// setting reads NAME=VALUE where the name is a relevant one. The value is kept
// only as far as a number or a word can be long.
func setting(line []byte) (name, value string, ok bool) {
	k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte{'='})
	name = string(bytes.TrimSpace(k))
	if !ok || !slices.Contains(relevantSettings, name) {
		return "", "", false
	}
	value = strings.Trim(string(bytes.TrimSpace(v)), `"'`)
	if len(value) > maxSetting || strings.IndexFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }) >= 0 {
		value = "?"
	}
	return name, value, true
}

// maxSetting is the length of the longest value that is kept, in bytes.
const maxSetting = 24

// capIPCLock is the bit of CAP_IPC_LOCK.
// Source: include/uapi/linux/capability.h.
const capIPCLock = 14

// lockExempt says whether the limit on locked memory does not hold for this
// process: the kernel asks for CAP_IPC_LOCK in the first user namespace, which is
// the one whose users are mapped to themselves. nil: not known.
// Source: drivers/infiniband/core/umem.c (ib_umem_get), Linux 6.1.
func (r *reader) lockExempt() *bool {
	can, ok := readWhole(r, statusFile, parseCapability)
	if !ok || can == nil || !*can {
		return can
	}
	first, ok := readWhole(r, uidMapFile, func(data []byte) (bool, error) {
		return slices.Equal(strings.Fields(string(data)), []string{"0", "0", "4294967295"}), nil
	})
	if !ok {
		return nil
	}
	return &first
}

// parseCapability reads "CapEff:\t000001ffffffffff"; nil without such a line.
// Source: fs/proc/array.c (task_cap).
func parseCapability(data []byte) (*bool, error) {
	for line := range bytes.Lines(data) {
		text, found := strings.CutPrefix(string(line), capEffective)
		if !found {
			continue
		}
		caps, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s %q: want a hexadecimal number", capEffective, clip(strings.TrimSpace(text)))
		}
		return new(caps>>capIPCLock&1 != 0), nil
	}
	return nil, nil
}

const capEffective = "CapEff:"

// keepSettings is what a capture holds of a file of settings, with sep between
// them.
func keepSettings(data []byte, sep byte) []byte {
	var out []byte
	for _, s := range settings(data, sep, "") {
		out = append(append(out, s.Name+"="+s.Value...), sep)
	}
	return out
}
