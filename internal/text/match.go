package text

import "path"

// Matches says whether a name matches a pattern: * stands for any characters and ? for one, but neither for
// a slash, as in path.Match; "*" alone matches all names.
func Matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "*" || ok && err == nil
}
