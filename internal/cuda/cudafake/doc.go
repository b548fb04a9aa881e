//go:build !cgo || !linux

// Package cudafake is a stand-in for libcuda for tests. It needs cgo and Linux.
package cudafake
