//go:build vmlab && linux && cgo

package rdma

import "time"

const (
	// standsStill is how long a machine may stand still while shaped lanes are measured.
	// A lane holds two slices of 64 KiB for each of its two queue pairs: 210 ms at 10 Mbit/s.
	standsStill = 100 * time.Millisecond
	// quietTries is how often a while is measured until no machine stands still.
	quietTries = 3
)

// stoodStill sleeps for a while in small pieces. It gives the longest time by which one
// of them was late: the host had something else to do than to run this machine.
func stoodStill(while time.Duration) (longest time.Duration) {
	const piece = 10 * time.Millisecond
	for end := time.Now().Add(while); ; {
		began := time.Now()
		if !began.Before(end) {
			return longest
		}
		pause(piece)
		longest = max(longest, time.Since(began)-piece)
	}
}

// StoodStill does so on machine 2.
func (f *Far) StoodStill(while time.Duration, longest *time.Duration) error {
	*longest = stoodStill(while)
	return nil
}

// undisturbed is the rate of a steady while in which both machines ran, in bytes per second. A
// cable carries nothing while who feeds it stands still for longer than its lane lasts, and that
// is the host's doing. Where the host is never quiet, it is that of the quietest while.
func (d *duo) undisturbed(steady time.Duration) (rate float64) {
	d.Helper()
	var least time.Duration
	for try := 1; try <= quietTries; try++ {
		var here, there time.Duration
		got := d.rate(func() {
			call := make(chan error, 1)
			go func() { call <- ask("StoodStill", steady, &there) }()
			here = stoodStill(steady)
			if err := <-call; err != nil {
				d.Error(err)
			}
		})
		if longest := max(here, there); try == 1 || longest < least {
			rate, least = got, longest
		}
		if least <= standsStill {
			return rate
		}
	}
	d.Logf("the quietest of %d whiles: a machine stood still for %v", quietTries, least.Round(time.Millisecond))
	return rate
}
