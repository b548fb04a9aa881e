// Package export writes a fleet in the forms that schedulers, clusters and other tools read: a file
// for each of them.
//
// What a form has no place for, and what the fleet does not tell, is in the notes of an Output and in
// comments of the file. Names that a form forbids are replaced, never so that two become one.
package export

// Output is a file for another program.
type Output struct {
	Data []byte
	// Notes say what the form cannot hold, or what was left out because it is not known.
	Notes []string
}
