// Package export writes a host's decisions in the forms that other programs
// read: Mooncake's NIC priority matrix, the environment of communication
// libraries and inference engines, and the text format of Prometheus.
//
// Where a reader of these files wants something else than what the plan says,
// the reader's source decides, and the output says so in a comment. What the
// topology does not tell is left out with the reason; nothing is guessed.
package export
