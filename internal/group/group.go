// Package group puts the elements of a list that belong together into groups.
package group

// By groups elements of equal key. Groups are in the order in which their keys first appear, elements in
// their order in the list.
func By[T any, K comparable](list []T, key func(T) K) [][]T {
	var groups [][]T
	place := map[K]int{}
	for _, x := range list {
		k := key(x)
		i, ok := place[k]
		if !ok {
			i = len(groups)
			place[k], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], x)
	}
	return groups
}
