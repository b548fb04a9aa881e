// Package lanes is a lab of real lanes: two network namespaces with several veth
// pairs between them, each shaped to a rate by the kernel (tc tbf), one engine in
// each namespace. It holds tests only. They need Linux and the right to make
// network namespaces, as root or in a user namespace, and are skipped without.
package lanes
