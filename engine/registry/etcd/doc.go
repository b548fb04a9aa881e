// Package etcd is a registry of engines in etcd.
//
// The record of an engine is the value of <prefix>/v1/engines/<name>, as JSON, under one lease of
// each Registry. Of two engines that register one name the later stays. A record is renewed at half
// of the time that it has left, again and again while etcd does not answer; when etcd says that the
// lease is gone, registry.Lease.Lost says so, and the engine publishes again under a new one. While etcd is
// away nothing ends: Lookup answers with what was found last, and says how old that is (Record.Stale).
//
// It is a module of its own, so that programs that do not import it have no part of etcd's client.
// topoctl's command, its agent and the Python package run it as a process, topoctl-registry-etcd.
package etcd
