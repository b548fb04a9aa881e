// Package lab holds the tests of the lab itself: do machines meet, and does each fault do
// what it says. They run inside (see test/vmlab).
package lab
