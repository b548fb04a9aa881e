package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
)

// machineAndBoot tell whether two engines are on one machine since one boot. They
// are hashes: the machine's ID is not for everybody. "" is not known.
func machineAndBoot() (machine, boot string) {
	boot = hashOf("/proc/sys/kernel/random/boot_id")
	machine = hashOf("/etc/machine-id")
	if machine == "" {
		machine = boot // one boot is of one machine
	}
	return machine, boot
}

func hashOf(file string) string {
	data, err := os.ReadFile(file)
	text := strings.TrimSpace(string(data))
	if err != nil || text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("topoctl engine " + text))
	return hex.EncodeToString(sum[:16])
}
