// Package units is the only place that turns figures into text for people.
// Documents for programs hold base units (bytes, bytes per second) instead.
package units

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/topoctl/topoctl/internal/pkgerr"
)

// System is the unit in which rates are printed.
type System string

// The unit systems. Auto leaves the choice to what is customary for the thing
// that is printed: gigabits for network ports, gigabytes for the rest.
const (
	Auto   System = "auto"
	Gbit   System = "gbit"   // 10^9 bits per second
	Gbyte  System = "gbyte"  // 10^9 bytes per second
	Gibyte System = "gibyte" // 2^30 bytes per second
)

// Systems lists the unit systems, for flags and completion.
func Systems() []string {
	return []string{string(Auto), string(Gbit), string(Gbyte), string(Gibyte)}
}

// ParseSystem reads the name of a unit system.
func ParseSystem(s string) (System, error) {
	switch v := System(s); v {
	case Auto, Gbit, Gbyte, Gibyte:
		return v, nil
	}
	return "", pkgerr.Errorf("units", "%q: want %s", s, strings.Join(Systems(), ", "))
}

// Or gives the system itself, or customary where the choice is left open.
func (s System) Or(customary System) System {
	if s == Auto || s == "" {
		return customary
	}
	return s
}

// suffixes are a system's units, each a step smaller than the one before.
var suffixes = map[System][]string{
	Gbit:   {"Gb/s", "Mb/s", "kb/s", "b/s"},
	Gbyte:  {"GB/s", "MB/s", "kB/s", "B/s"},
	Gibyte: {"GiB/s", "MiB/s", "KiB/s", "B/s"},
}

// Suffix is the unit after a number: "Gb/s", "GB/s" or "GiB/s".
func (s System) Suffix() string { return suffixes[s.Or(Gbyte)][0] }

// Rate prints bytes per second with its unit: "400 Gb/s", "63.0 GB/s". Below a tenth of the
// system's unit it takes a smaller one: "9.9 Mb/s".
func Rate(bytesPerSec int64, s System) string {
	names, step, i := suffixes[s.Or(Gbyte)], 1000.0, 0
	if s == Gibyte {
		step = 1024
	}
	v := s.value(bytesPerSec)
	for ; i < len(names)-1 && v != 0 && v > -0.1 && v < 0.1; i++ {
		v *= step
	}
	return s.number(v) + " " + names[i]
}

// RateNumber prints bytes per second as a number of the system's unit: bits
// without a fraction that says nothing ("400", "2.5"), bytes with one decimal
// ("63.0"), and two significant digits below one ("0.25").
func RateNumber(bytesPerSec int64, s System) string { return s.number(s.value(bytesPerSec)) }

// value is bytes per second in the system's unit.
func (s System) value(bytesPerSec int64) float64 {
	v := float64(bytesPerSec)
	switch s.Or(Gbyte) {
	case Gbit:
		return v * 8 / 1e9
	case Gibyte:
		return v / (1 << 30)
	}
	return v / 1e9
}

func (s System) number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v > -0.95 && v < 0.95:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	text := strconv.FormatFloat(v, 'f', 1, 64)
	if s.Or(Gbyte) == Gbit {
		text = strings.TrimSuffix(text, ".0")
	}
	return text
}

// Bytes prints an amount of memory in binary units: "512 B", "80 GiB", "1.5 TiB".
func Bytes(n int64) string {
	const names = "KMGTPE"
	if n > -1024 && n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, i := float64(n)/1024, 0
	for (v >= 1023.95 || v <= -1023.95) && i < len(names)-1 {
		v, i = v/1024, i+1
	}
	text := strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
	return fmt.Sprintf("%s %ciB", text, names[i])
}

// pcieSpeeds are the lane speeds of PCIe's generations, in mega transfers per second.
var pcieSpeeds = [...]int{1: 2500, 2: 5000, 3: 8000, 4: 16000, 5: 32000, 6: 64000, 7: 128000}

// PCIeSpeed is the lane speed of a PCIe generation in mega transfers per second, 0 for one
// that does not exist.
func PCIeSpeed(gen int) int {
	if gen < 0 || gen >= len(pcieSpeeds) {
		return 0
	}
	return pcieSpeeds[gen]
}

// PCIeGen prints a lane speed as its generation, "gen5", or in GT/s if no generation has it;
// 0 is unknown, "gen?".
func PCIeGen(speedMTs int) string {
	if speedMTs <= 0 {
		return "gen?"
	}
	if gen := slices.Index(pcieSpeeds[:], speedMTs); gen > 0 {
		return "gen" + strconv.Itoa(gen)
	}
	return strconv.FormatFloat(float64(speedMTs)/1000, 'g', -1, 64) + "GT/s"
}

// GTs prints a lane speed as sysfs does: "32 GT/s".
func GTs(speedMTs int) string {
	return strconv.FormatFloat(float64(speedMTs)/1000, 'g', -1, 64) + " GT/s"
}

// PCIe prints a link state: "gen5 x16". Zero means unknown, and a link of which nothing is
// known is "".
func PCIe(speedMTs, width int) string {
	speed, lanes := PCIeGen(speedMTs), "x?"
	if speedMTs <= 0 && width <= 0 {
		return ""
	}
	if width > 0 {
		lanes = "x" + strconv.Itoa(width)
	}
	return speed + " " + lanes
}
