// Package probelab is a lab of probes: hosts that are network namespaces, each with ports
// that are shaped to a rate by the kernel (tc tbf) and joined by a bridge for each rail.
// Each host runs "topoctl agent" on files that state its hardware; "topoctl probe fabric"
// measures between them. It holds tests only, here because they run the command
// itself. They need Linux and the right to make network namespaces, as root or in a user
// namespace, and are skipped without.
package probelab
