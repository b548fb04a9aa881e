// Package soak runs the engine for long over transports and networks that fail at
// random, and looks at every byte, goroutine and descriptor afterwards. It holds
// tests only. go test runs seconds of it; with TOPOCTL_SOAK=long (.ci/long soak) it
// moves millions of slices.
package soak
