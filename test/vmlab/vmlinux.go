package vmlab

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// unpackVmlinux takes the ELF kernel out of a bzImage. The kernel would unpack itself, which
// takes an emulated processor six seconds. Fields: Documentation/arch/x86/boot.rst.
func unpackVmlinux(image []byte) ([]byte, error) {
	payload, err := payloadOf(image)
	if err != nil {
		return nil, fmt.Errorf("image: kernel: %w", err)
	}
	out, err := unpack(payload)
	if err != nil {
		return nil, fmt.Errorf("image: kernel: %w", err)
	}
	if !bytes.HasPrefix(out, []byte("\x7fELF")) {
		return nil, errors.New("image: kernel: what was unpacked is no ELF file")
	}
	return out, nil
}

// payloadOf finds the packed kernel by the boot header.
func payloadOf(image []byte) ([]byte, error) {
	if len(image) < 0x250 || string(image[0x202:0x206]) != "HdrS" {
		return nil, errors.New("no bzImage: no boot header")
	}
	if v := binary.LittleEndian.Uint16(image[0x206:]); v < 0x208 {
		return nil, fmt.Errorf("boot protocol %#x does not say where the kernel is (0x208 does)", v)
	}
	sectors := int64(image[0x1f1])
	if sectors == 0 {
		sectors = 4
	}
	start := (sectors+1)*512 + int64(binary.LittleEndian.Uint32(image[0x248:]))
	length := int64(binary.LittleEndian.Uint32(image[0x24c:]))
	// The last four bytes are the unpacked length, and no part of the stream.
	if length < 10 || start+length > int64(len(image)) {
		return nil, fmt.Errorf("the boot header places %d bytes at %d in a file of %d", length, start, len(image))
	}
	return image[start : start+length-4], nil
}

func unpack(payload []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(payload, []byte("\x1f\x8b")):
		r, err := gzip.NewReader(bytes.NewReader(payload))
		if err != nil {
			return nil, err
		}
		r.Multistream(false)
		return io.ReadAll(r)
	case bytes.HasPrefix(payload, []byte("\xfd7zXZ\x00")):
		return filter(payload, "xz", "-dc")
	case bytes.HasPrefix(payload, []byte("\x28\xb5\x2f\xfd")):
		return filter(payload, "zstd", "-dcq")
	}
	return nil, fmt.Errorf("packed in a way that is not known: % x", payload[:6])
}

func filter(in []byte, program string, args ...string) ([]byte, error) {
	cmd := exec.Command(program, args...)
	cmd.Stdin = bytes.NewReader(in)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(errs.Bytes()))
	}
	return out, nil
}
