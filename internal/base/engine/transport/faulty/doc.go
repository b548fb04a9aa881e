// Package faulty makes transports and networks fail, for tests.
//
// Wrap is a transport around another one that delays, drops, duplicates,
// reorders and fails requests, kills connections, and lets WRITEs land after
// their connection is over: at random by a Plan, which a seed makes repeatable,
// or by hand. All of it stays within the contract of package transport, so an
// engine must come through it without a wrong byte.
//
// Proxy stands between two ends of TCP connections and does to bytes what
// networks do: it delays, holds back, corrupts, cuts.
package faulty
