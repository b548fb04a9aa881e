package owners

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Attributes of RDMA_NLDEV_CMD_RES_QP_GET.
// Source: include/uapi/rdma/rdma_netlink.h (enum rdma_nldev_attr, rdma_nldev_command).
const (
	cmdQueuePairs = 10 // RDMA_NLDEV_CMD_RES_QP_GET

	attrDeviceName = 2
	attrPort       = 3
	attrPairs      = 19
	attrPair       = 20
	attrPID        = 28
)

// maxQueuePairs bounds the queue pairs of one message of the kernel.
const maxQueuePairs = 1 << 16

var errShort = errors.New("an attribute is cut off")

// parseQueuePairs reads the attributes of one message of the kernel: the queue pairs of a device
// that belong to processes. Those of the kernel itself have no PID.
func parseQueuePairs(message []byte) ([]QueuePair, error) {
	var out []QueuePair
	device := ""
	err := attributes(message, func(kind uint16, value []byte) error {
		switch kind {
		case attrDeviceName:
			name, _, _ := bytes.Cut(value, []byte{0})
			device = string(name)
		case attrPairs:
			return attributes(value, func(kind uint16, value []byte) error {
				if kind != attrPair {
					return nil
				}
				q := QueuePair{Device: device}
				if err := q.parse(value); err != nil {
					return err
				}
				if q.PID != 0 && len(out) < maxQueuePairs {
					out = append(out, q)
				}
				return nil
			})
		}
		return nil
	})
	return out, err
}

func (q *QueuePair) parse(entry []byte) error {
	return attributes(entry, func(kind uint16, value []byte) error {
		switch {
		case kind == attrPort && len(value) == 4:
			q.Port = int(binary.NativeEndian.Uint32(value))
		case kind == attrPID && len(value) == 4:
			q.PID = int(binary.NativeEndian.Uint32(value))
		}
		return nil
	})
}

// attributes walks netlink's attributes: a length of two bytes, a type of two, the value, and
// padding to four.
func attributes(data []byte, each func(kind uint16, value []byte) error) error {
	for len(data) > 0 {
		if len(data) < 4 {
			return errShort
		}
		size := int(binary.NativeEndian.Uint16(data))
		if size < 4 || size > len(data) {
			return fmt.Errorf("%w: %d bytes of %d", errShort, len(data), size)
		}
		const flags = 0xc000 // NLA_F_NESTED, NLA_F_NET_BYTEORDER
		if err := each(binary.NativeEndian.Uint16(data[2:])&^flags, data[4:size]); err != nil {
			return err
		}
		data = data[min((size+3)&^3, len(data)):]
	}
	return nil
}
