// Package doctor judges the facts of a topology: is each link as wide as it
// can be, can NICs reach GPU memory, does every GPU have a NIC, is what the
// host shows believable. It collects nothing itself and knows no clock.
//
//	r, err := doctor.Run(t, doctor.Options{})
//	fmt.Print(r.Text(doctor.TextOptions{}))
//
// Each check ends in one of four ways. ok means that the facts were there and
// were fine. A finding says what, where, how bad, where it was read, and what
// to do. could_not_check says which facts are missing and how to get them:
// absence is never ok. not_applicable means that the host has nothing that the
// check is about. A check can have findings for some devices and lack the facts
// of others: it then lists both.
//
// Severities: an error does not work or loses much for certain; a warning is
// less than the host can do, or misleads other programs; info is true of the
// machine and good to know. What rests on a rate that is typical or a bound
// is never an error.
package doctor
