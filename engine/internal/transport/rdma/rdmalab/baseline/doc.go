// Package baseline is the least that moves memory over verbs: one queue pair, a loop in C
// that posts one work request at a time and takes one completion at a time, and sleeps
// on the completion channel until there is one. What the engine does is measured
// against it.
package baseline
