package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// value is a flag that is not text, a number, a time or a switch.
type value[T any] struct {
	text  string
	to    *T
	parse func(string) (T, error)
}

func (v *value[T]) String() string { return v.text }
func (v *value[T]) Type() string   { return "string" }

func (v *value[T]) Set(text string) (err error) {
	x, err := v.parse(text)
	if err == nil {
		v.text, *v.to = text, x
	}
	return err
}

// Var adds a flag that parse reads. Its error quotes the text and says what is wanted in its place, as those of
// parseBytes and its kin do. Without a default, *to stays as it is.
func Var[T any](cmd *cobra.Command, to *T, name, normal, usage string, parse func(string) (T, error)) {
	v := &value[T]{to: to, parse: parse}
	if normal != "" {
		if err := v.Set(normal); err != nil {
			panic(fmt.Sprintf("the default of --%s: %v", name, err))
		}
	}
	cmd.Flags().Var(v, name, usage)
}

// oneOf reads one of some words.
func oneOf[T ~string](words ...T) func(string) (T, error) {
	return func(s string) (T, error) {
		if slices.Contains(words, T(s)) {
			return T(s), nil
		}
		return "", fmt.Errorf("%q: want %s", s, either(wordsOf(words)))
	}
}

// wordsOf are words of a type of their own as strings.
func wordsOf[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, w := range list {
		out[i] = string(w)
	}
	return out
}

// badValue says of a flag what is wanted in place of its value.
func badValue(err *pflag.InvalidValueError) error {
	want := map[string]string{
		"duration": "a time, such as 500ms, 10s or 5m", "bool": "true or false", "float64": "a number",
		"int": "a whole number", "uint64": "a whole number, 0 or more",
	}[err.GetFlag().Value.Type()]
	if want == "" {
		return fmt.Errorf("--%s %w", err.GetFlag().Name, errors.Unwrap(err))
	}
	return fmt.Errorf("--%s %q: want %s", err.GetFlag().Name, err.GetValue(), want)
}
