// Package report prints what commands find for people: as text for a terminal or a pipe, as rows for programs, as a page
// that needs no network, and as drawings (heat maps, bars). Its users say what there is to tell: an answer, findings,
// sections with tables. How that looks, in each form, is said here and nowhere else.
//
// What stands in a report may be foreign text: the name of a host, a message of a peer. It is made harmless here, at the
// end of each form: [Finish] for terminals, the page and the drawings for browsers.
package report
