// Package etcd is a registry of engines in etcd.
//
// The record of an engine is the value of <prefix>/v1/engines/<name>, as JSON, under one lease of
// each Registry. Of two engines that register one name the later stays. A record is renewed at half
// of the time that it has left, again and again while etcd does not answer; when etcd says that the
// lease is gone, registry.Lease.Lost says so, and the engine publishes again under a new one. While etcd is
// away nothing ends: Lookup answers with what was found last, and says how old that is (Record.Stale).
//
// Programs that import engine and not this package have no part of etcd's client. topoctl and the C library have
// it; the build tag noetcd leaves it out of them.
package etcd
